"""An ID that is sent again, and records that cannot be read: what the transactions of the engine are guarded against
(issue 16)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from palisade.catalog import keys
from palisade.catalog.engine import ProcedureEngine
from palisade.catalog.errors import DamagedRow, ProcedureDiffers
from palisade.catalog.operations.all import KINDS
from palisade.catalog.procedures import ProcedureState
from palisade.metastore.requests import Range, Txn
from palisade.metastore.results import RangeResult, TxnResult
from tests.support.catalog_world import DB, DEVICE, TABLE, CatalogWorld, world_for

READINGS = keys.at(keys.TABLES, "plant.readings")


class Overtaken:
    """The port of an engine. `meanwhile` happens between what it has read and its first transaction."""

    def __init__(self, world: CatalogWorld, meanwhile: Callable[[], Awaitable[object]]) -> None:
        self._world, self._meanwhile = world, meanwhile
        self.overtaken = False

    async def range(self, request: Range) -> RangeResult:
        return await self._world.range(request)

    async def txn(self, request: Txn) -> TxnResult:
        if not self.overtaken:
            self.overtaken = True
            await self._meanwhile()
        return await self._world.txn(request)

    async def released(self, revision: int) -> None:
        await self._world.released(revision)

    def now_ms(self) -> int:
        return self._world.now_ms()


async def test_id_sent_again_while_its_first_procedure_ends_is_executed_once() -> None:
    """A client without an answer asks another node, which looks before the first one begins. By the time it writes, the
    locks are free again."""
    world = await world_for([DB, TABLE])
    kind, fields = KINDS["delete-devices"], {"table": "plant.readings", "devices": ["m1"]}

    async def first() -> None:
        await world.do("delete-devices", "p1", **fields)
        world.put(world.row(READINGS)["data"].encode() + b"m1/new")

    again = ProcedureEngine(Overtaken(world, first), "n2")
    found = await again.submit("p1", kind, kind.checked(fields), "o-again")
    assert found.state is ProcedureState.DONE
    assert (await world.engine().run("p1")).done == found.done
    assert world.below(world.row(READINGS)["data"].encode() + b"m1/"), "what was written after it stays"
    assert world.below(keys.LOCKS) == {}


async def test_id_of_another_request_that_ends_meanwhile_is_refused() -> None:
    world = await world_for([DB])
    again = ProcedureEngine(Overtaken(world, lambda: world.do(DEVICE[0], "p1", **DEVICE[1])), "n2")
    kind = KINDS["create-table"]
    with pytest.raises(ProcedureDiffers, match="p1 is a create-device with other fields"):
        await again.submit("p1", kind, kind.checked(TABLE[1]), "o-again")
    assert world.row(READINGS) is None


async def test_locks_of_an_unreadable_record_stay_until_the_record_is_deleted() -> None:
    """What the procedure has done is not known, so no other one may work on its objects."""
    world = await world_for([DB])
    await world.submit("p1", *TABLE[:1], **TABLE[1])
    locks = world.below(keys.LOCKS)
    assert locks
    world.put(keys.PROCEDURES + b"p1", b"damaged")
    with pytest.raises(DamagedRow):
        await world.engine().run("p1")
    assert not await world.engine().drop_orphans("p1")
    assert world.below(keys.LOCKS) == locks
    world.delete(keys.PROCEDURES + b"p1")
    assert await world.engine().drop_orphans("p1")
    assert world.below(keys.LOCKS) == {}


async def test_locks_that_were_taken_again_meanwhile_are_not_dropped() -> None:
    """The ID was submitted again between the look at the locks and their removal."""
    world = await world_for([DB])
    await world.submit("p1", TABLE[0], **TABLE[1])
    world.delete(keys.PROCEDURES + b"p1")

    async def again() -> None:
        await world.engine().drop_orphans("p1")
        await world.submit("p1", TABLE[0], **TABLE[1])

    assert not await ProcedureEngine(Overtaken(world, again), "n2").drop_orphans("p1")
    assert (await world.engine().run("p1")).state is ProcedureState.DONE
