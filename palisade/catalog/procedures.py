"""Procedures: changes in several steps that end, under any leader, in exactly one of their allowed states (F9). Pure.

    SUBMITTED -> PREPARED -> DONE                    changes that fit one transaction
                          -> DESTROYING -> DONE      changes that remove data permanently
                          -> ROLLED_BACK             only before data is removed, and never for permissions (F8)
              -> FAILED                              nothing was changed

A procedure is a record. Each step is a transaction that compares the record as it was read and writes the new one, so a
step takes effect once, however often and on however many nodes it is tried. The transaction that writes the first
record acquires the locks, and the one that writes the last record releases them. PREPARED means that the change is
written, but not known to be released: the record's revision is that of the change. The next step follows PROCEED for
that revision; DESTROYING is the durable proof of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palisade.base.counted import counted
from palisade.catalog import keys
from palisade.catalog.errors import CatalogError, DamagedRow, NotAllowed, NotCancellable
from palisade.catalog.operations.all import kind_named
from palisade.catalog.operations.operation_kind import OperationKind
from palisade.catalog.plan import CatalogPlan, Changes
from palisade.catalog.row_format import SHOWN

RECORD_BYTES_MAX = 768 * 1024
DESTROY_MAX = 500
ID_MAX = 64


class ProcedureState(enum.Enum):
    SUBMITTED = "submitted"
    PREPARED = "prepared"
    DESTROYING = "destroying"
    DONE = "done"
    FAILED = "failed"
    ROLLED_BACK = "rolled-back"


ENDED = frozenset({ProcedureState.DONE, ProcedureState.FAILED, ProcedureState.ROLLED_BACK})
NEXT: Mapping[ProcedureState, frozenset[ProcedureState]] = {
    ProcedureState.SUBMITTED: frozenset({ProcedureState.PREPARED, ProcedureState.FAILED}),
    ProcedureState.PREPARED: frozenset({ProcedureState.DESTROYING, ProcedureState.DONE, ProcedureState.ROLLED_BACK}),
    ProcedureState.DESTROYING: frozenset({ProcedureState.DESTROYING, ProcedureState.DONE}),
    ProcedureState.DONE: frozenset(),
    ProcedureState.FAILED: frozenset(),
    ProcedureState.ROLLED_BACK: frozenset(),
}


class IllegalStep(Exception):
    """A transition that NEXT does not allow: a bug. Nothing was written."""


@dataclass(frozen=True, slots=True)
class ProcedureDone:
    """One entry of the history. `revision`: of its write; 0 for the newest entry, whose revision is the record's."""

    step: str
    node: str
    at_ms: int
    text: str
    revision: int = 0


@dataclass(frozen=True, slots=True)
class ProcedureActor:
    """The node that executes a step, and its wall clock time. For display only."""

    node: str
    now_ms: int


@dataclass(frozen=True, slots=True)
class Failed:
    code: str
    text: str

    @staticmethod
    def of(error: CatalogError) -> Failed:
        return Failed(error.code, str(error))


@dataclass(frozen=True, slots=True)
class Procedure:
    """`object_id`: drawn at submission. `undo`: the previous rows of the change. `finish`: the rows written at the end.
    `made`: prefixes that must be empty for a rollback. `destroy`: prefixes to remove; `gone`: how many of them are
    empty by now; `destroyed`: how many rows were removed. `revision`: of the record as it was read; 0 if not written
    yet."""

    id: str
    kind: str
    request: Mapping[str, Any]
    object_id: str
    state: ProcedureState
    locks: tuple[str, ...]
    done: tuple[ProcedureDone, ...]
    undo: Changes
    finish: Changes
    destroy: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    gone: int = 0
    destroyed: int = 0
    failed: Failed | None = None
    revision: int = 0

    @property
    def key(self) -> bytes:
        return keys.PROCEDURES + self.id.encode()

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def operation(self) -> OperationKind:
        return kind_named(self.kind)

    def step(self, state: ProcedureState, actor: ProcedureActor, *texts: tuple[str, str], **changes: Any) -> Procedure:
        """Raises IllegalStep. `texts`: (step, description) for the history."""
        if state not in NEXT[self.state] or (state is ProcedureState.ROLLED_BACK and self.operation.keeps):
            raise IllegalStep(f"procedure {self.id} ({self.kind}): illegal step {self.state.value} -> {state.value}")
        past = tuple(replace(each, revision=each.revision or self.revision) for each in self.done)
        new = tuple(ProcedureDone(name, actor.node, actor.now_ms, text) for name, text in texts)
        return replace(self, state=state, done=past + new, **changes)


def submitted(
    id_: str,
    kind: OperationKind,
    request: Mapping[str, Any],
    object_id: str,
    locks: tuple[str, ...],
    actor: ProcedureActor,
) -> Procedure:
    first = ProcedureDone("submitted", actor.node, actor.now_ms, kind.help)
    return Procedure(id_, kind.name, request, object_id, ProcedureState.SUBMITTED, locks, (first,), {}, {})


def prepared(procedure: Procedure, plan: CatalogPlan, before: Changes, actor: ProcedureActor) -> Procedure:
    """`before`: the present rows that the plan changes. Raises NotAllowed for a plan that removes too many objects."""
    if len(plan.destroy) > DESTROY_MAX:
        raise NotAllowed(f"removes {len(plan.destroy)} objects at once, the limit is {DESTROY_MAX}: name fewer")
    undo = {} if procedure.operation.keeps else before
    text = f"{counted(len(plan.prepare), 'row')} written; to be released to every node"
    return procedure.step(
        ProcedureState.PREPARED,
        actor,
        ("prepared", text),
        undo=undo,
        finish=plan.finish,
        destroy=plan.destroy,
        made=plan.made,
    )


def failed(procedure: Procedure, error: CatalogError, actor: ProcedureActor) -> Procedure:
    why = Failed.of(error)
    return ended(procedure.step(ProcedureState.FAILED, actor, ("failed", why.text), failed=why))


def released(procedure: Procedure, actor: ProcedureActor) -> Procedure:
    """Only after PROCEED for `procedure.revision` (F9)."""
    step = ("released", f"every node has revision {procedure.revision}, or serves nothing")
    if procedure.destroy:
        return procedure.step(ProcedureState.DESTROYING, actor, step, undo={})
    return ended(procedure.step(ProcedureState.DONE, actor, step, ("done", "")))


def destroyed(procedure: Procedure, gone: int, rows: int, actor: ProcedureActor) -> Procedure:
    """`rows` more rows were removed, and the first `gone` prefixes are empty. All batches share one history entry."""
    total = procedure.destroyed + rows
    kept = procedure.done if procedure.done[-1].step != "destroyed" else procedure.done[:-1]
    text = f"{counted(total, 'row')} removed permanently"
    stepped = replace(procedure, done=kept).step(ProcedureState.DESTROYING, actor, ("destroyed", text))
    return replace(stepped, gone=gone, destroyed=total)


def finished(procedure: Procedure, actor: ProcedureActor) -> Procedure:
    text = f"{counted(procedure.destroyed, 'row')} removed permanently"
    return ended(procedure.step(ProcedureState.DONE, actor, ("done", text)))


def rolled_back(procedure: Procedure, why: CatalogError, actor: ProcedureActor) -> Procedure:
    """Raises IllegalStep in other states than PREPARED, and for operations that keep their writes."""
    text = f"{counted(len(procedure.undo), 'row')} restored: {why}"
    return ended(procedure.step(ProcedureState.ROLLED_BACK, actor, ("rolled-back", text), failed=Failed.of(why)))


def ended(procedure: Procedure) -> Procedure:
    """Removes the fields that an ended procedure does not need, above all password hashes."""
    secret = procedure.operation.secret
    request = {name: value for name, value in procedure.request.items() if name != secret}
    return replace(procedure, request=request, undo={}, finish={}, destroy=(), made=())


def check_cancellable(procedure: Procedure) -> None:
    """Raises NotCancellable."""
    if procedure.ended:
        raise NotCancellable(f"procedure {procedure.id} has ended: {procedure.state.value}")
    if procedure.state is ProcedureState.DESTROYING:
        raise NotCancellable(f"procedure {procedure.id} is already removing data and can only go forward")
    if procedure.operation.keeps and procedure.state is ProcedureState.PREPARED:
        raise NotCancellable(
            f"procedure {procedure.id} has already changed permissions and stays pending until every node has them;"
            " to undo it, submit the opposite operation afterwards"
        )


def is_same(procedure: Procedure, kind: str, request: Mapping[str, Any]) -> bool:
    """Whether this is a repetition of the same operation. Passwords are not compared, because their salts differ."""
    secret = procedure.operation.secret
    first, second = ({name: v for name, v in each.items() if name != secret} for each in (procedure.request, request))
    return procedure.kind == kind and first == second


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def damaged(key: bytes, why: str) -> DamagedRow:
    return DamagedRow(
        f"damaged procedure record {key.decode('utf-8', 'backslashreplace')[:200]} ({shortened(why)}): delete it, and "
        "the locks with its ID"
    )
