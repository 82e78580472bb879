"""Procedures: changes of several steps that end, whoever leads, in exactly one of their allowed states (F9). Pure.

    SUBMITTED -> PREPARED -> DONE                    everything that can be one transaction
                          -> DESTROYING -> DONE      what removes data for ever
                          -> ROLLED_BACK             while nothing was destroyed, and never for permissions (F8)
              -> FAILED                              nothing was changed

A procedure is a record, written by transactions that compare the record as it was read. So a step is done once, whoever
does it and however often it is tried, and two that work on one procedure do no harm: one of their transactions finds
the record changed. Its locks are taken by the transaction that writes the first record, and given back by the one that
writes the last. PREPARED means that the change is written and is not known to be released: the revision of the record
is that of the change. What follows comes after PROCEED for that revision; DESTROYING is the durable proof of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palisade.catalog import keys
from palisade.catalog.errors import CatalogError, DamagedRow, NotAllowed, NotCancellable
from palisade.catalog.kinds.all import kind_named
from palisade.catalog.kinds.kind import Kind
from palisade.catalog.plan import Changes, Plan
from palisade.catalog.row_format import SHOWN

RECORD_BYTES_MAX = 768 * 1024
DESTROY_MAX = 500
ID_MAX = 64


class State(enum.Enum):
    SUBMITTED = "submitted"
    PREPARED = "prepared"
    DESTROYING = "destroying"
    DONE = "done"
    FAILED = "failed"
    ROLLED_BACK = "rolled-back"


ENDED = frozenset({State.DONE, State.FAILED, State.ROLLED_BACK})
NEXT: Mapping[State, frozenset[State]] = {
    State.SUBMITTED: frozenset({State.PREPARED, State.FAILED}),
    State.PREPARED: frozenset({State.DESTROYING, State.DONE, State.ROLLED_BACK}),
    State.DESTROYING: frozenset({State.DESTROYING, State.DONE}),
    State.DONE: frozenset(),
    State.FAILED: frozenset(),
    State.ROLLED_BACK: frozenset(),
}


class IllegalStep(Exception):
    """A step that the table above does not know: a bug. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Done:
    """One thing that was done. `revision`: which one wrote it; 0 for the newest one, whose revision is the record's."""

    step: str
    node: str
    at_ms: int
    text: str
    revision: int = 0


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does a step, and when, by its wall clock: for people to read, nothing depends on it."""

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
    """`object_id` was drawn when it was submitted. `undo`: what the changed rows were before; `finish`: what is written
    at the end. `made`: prefixes that have to be empty where it is taken back. `destroy`: prefixes; `gone`: how many of
    them are empty by now; `destroyed`: how many rows were removed. `revision`: of the record as it was read; 0 for one
    that is not written yet."""

    id: str
    kind: str
    request: Mapping[str, Any]
    object_id: str
    state: State
    locks: tuple[str, ...]
    done: tuple[Done, ...]
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
    def operation(self) -> Kind:
        return kind_named(self.kind)

    def step(self, state: State, actor: Actor, *texts: tuple[str, str], **changes: Any) -> Procedure:
        """Raises IllegalStep. `texts`: (step, what was done) for the history."""
        if state not in NEXT[self.state] or (state is State.ROLLED_BACK and self.operation.keeps):
            raise IllegalStep(f"procedure {self.id} ({self.kind}) can't go from {self.state.value} to {state.value}")
        past = tuple(replace(each, revision=each.revision or self.revision) for each in self.done)
        new = tuple(Done(name, actor.node, actor.now_ms, text) for name, text in texts)
        return replace(self, state=state, done=past + new, **changes)


def submitted(
    id_: str, kind: Kind, request: Mapping[str, Any], object_id: str, locks: tuple[str, ...], actor: Actor
) -> Procedure:
    first = Done("submitted", actor.node, actor.now_ms, kind.help)
    return Procedure(id_, kind.name, request, object_id, State.SUBMITTED, locks, (first,), {}, {})


def prepared(procedure: Procedure, plan: Plan, before: Changes, actor: Actor) -> Procedure:
    """`before`: the rows that the plan changes. Raises NotAllowed for one that is too large to be taken back."""
    if len(plan.destroy) > DESTROY_MAX:
        raise NotAllowed(
            f"it would remove {len(plan.destroy)} things at a time, the limit is {DESTROY_MAX}: name fewer"
        )
    undo = {} if procedure.operation.keeps else before
    text = f"{len(plan.prepare)} row(s) written; to be released to every node"
    return procedure.step(
        State.PREPARED,
        actor,
        ("prepared", text),
        undo=undo,
        finish=plan.finish,
        destroy=plan.destroy,
        made=plan.made,
    )


def failed(procedure: Procedure, error: CatalogError, actor: Actor) -> Procedure:
    why = Failed.of(error)
    return ended(procedure.step(State.FAILED, actor, ("failed", why.text), failed=why))


def released(procedure: Procedure, actor: Actor) -> Procedure:
    """After PROCEED for `procedure.revision`, and never before (F9)."""
    step = ("released", f"every node has revision {procedure.revision}, or serves nothing")
    if procedure.destroy:
        return procedure.step(State.DESTROYING, actor, step, undo={})
    return ended(procedure.step(State.DONE, actor, step, ("done", "")))


def destroyed(procedure: Procedure, gone: int, rows: int, actor: Actor) -> Procedure:
    """`rows` more were removed, and the first `gone` prefixes are empty. One line of history, however many batches."""
    total = procedure.destroyed + rows
    kept = procedure.done if procedure.done[-1].step != "destroyed" else procedure.done[:-1]
    text = f"{total} row(s) removed for ever"
    stepped = replace(procedure, done=kept).step(State.DESTROYING, actor, ("destroyed", text))
    return replace(stepped, gone=gone, destroyed=total)


def finished(procedure: Procedure, actor: Actor) -> Procedure:
    return ended(procedure.step(State.DONE, actor, ("done", f"{procedure.destroyed} row(s) removed for ever")))


def rolled_back(procedure: Procedure, why: CatalogError, actor: Actor) -> Procedure:
    """Raises IllegalStep: of a state that it can't be done in, and of what keeps what it has written."""
    text = f"{len(procedure.undo)} row(s) put back: {why}"
    return ended(procedure.step(State.ROLLED_BACK, actor, ("rolled-back", text), failed=Failed.of(why)))


def ended(procedure: Procedure) -> Procedure:
    """What nobody needs any more is left out, above all the hashes of passwords."""
    secret = procedure.operation.secret
    request = {name: value for name, value in procedure.request.items() if name != secret}
    return replace(procedure, request=request, undo={}, finish={}, destroy=(), made=())


def check_cancellable(procedure: Procedure) -> None:
    """Raises NotCancellable."""
    if procedure.ended:
        raise NotCancellable(f"procedure {procedure.id} has ended: {procedure.state.value}")
    if procedure.state is State.DESTROYING:
        raise NotCancellable(f"procedure {procedure.id} removes data already: it can only go forward")
    if procedure.operation.keeps and procedure.state is State.PREPARED:
        raise NotCancellable(
            f"procedure {procedure.id} has changed permissions already: it stays pending until every node has them;"
            " to take it back, start the opposite operation afterwards"
        )


def is_same(procedure: Procedure, kind: str, request: Mapping[str, Any]) -> bool:
    """Whether it is this operation, sent again. Passwords are not compared: their salts differ."""
    secret = procedure.operation.secret
    first, second = ({name: v for name, v in each.items() if name != secret} for each in (procedure.request, request))
    return procedure.kind == kind and first == second


def shortened(text: str) -> str:
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def damaged(key: bytes, why: str) -> DamagedRow:
    return DamagedRow(
        f"the record {key.decode('utf-8', 'backslashreplace')[:200]} is not one of a procedure ({shortened(why)}): "
        "delete it, and the locks that have its id"
    )
