"""Faults that requests of an administrator show: keys of the cluster's own, regions, operations that are sent twice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from palisade.catalog import engine
from palisade.catalog.engine import ProcedureEngine
from palisade.catalog.operations.operation_kind import OperationKind
from palisade.catalog.procedures import Procedure
from palisade.metastore.requests import Txn
from palisade.service import pending_write, regions
from palisade.service.callers import UNRESTRICTED
from tests.sim.administrator import REGIONS, RESERVED
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import Patch, Stage, caught_by
from tests.sim.world import Settings

ADMINISTERED = Stage("members", 5, (), Settings())
SLOW_MEMBERS = replace(
    ADMINISTERED,
    plan=tuple(
        Fault(2.0 + 3.0 * number, Kind.SLOW_LINK, name, "n1", 2.9, 0.25)
        for number, name in enumerate(("n2", "n3", "n2", "n3"))
    ),
)
"""A member whose requests take long reads that a procedure has not begun, and writes after its end."""


@caught_by(RESERVED, on=ADMINISTERED)
def users_that_write_keys_of_the_cluster(patch: Patch) -> None:
    """Below `palisade/` (issue 16)."""
    patch.setattr(pending_write, "writes_own", lambda *_: None)


@caught_by(REGIONS, on=ADMINISTERED)
def regions_that_are_written_as_a_user(patch: Patch) -> None:
    """They are keys of the cluster's own (issue 16)."""
    patch.setattr(regions, "THIS_NODE", UNRESTRICTED)


@caught_by("procedures", on=SLOW_MEMBERS)
def procedures_that_begin_again(patch: Patch) -> None:
    """A repetition that arrives after the end replaces the record (issue 16)."""
    submit = ProcedureEngine.submit

    async def again(
        self: ProcedureEngine, id_: str, kind: OperationKind, request: Mapping[str, Any], object_id: str
    ) -> Procedure:
        txn = self._store.txn

        async def unguarded(request: Txn) -> Any:
            key = engine.keys.PROCEDURES + id_.encode()
            return await txn(replace(request, compare=tuple(each for each in request.compare if each.key != key)))

        twice = ProcedureEngine(self._store, self._node)
        twice._store = _With(self._store, unguarded)  # type: ignore[assignment]
        return await submit(twice, id_, kind, request, object_id)

    patch.setattr(ProcedureEngine, "submit", again)


class _With:
    """The store, with another `txn`."""

    def __init__(self, store: Any, txn: Any) -> None:
        self._store, self.txn = store, txn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)
