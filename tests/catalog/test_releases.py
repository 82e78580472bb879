"""PROCEED is refused: what can be taken back is taken back (F9), and what must not be stays pending (F8)."""

from __future__ import annotations

import pytest

from palisade.catalog import keys
from palisade.catalog.engine import ProcedurePending
from palisade.catalog.errors import Busy, NotCancellable, ProcedureDiffers
from palisade.catalog.operations.all import KINDS
from palisade.catalog.procedures import ProcedureState
from tests.support.catalog_world import (
    ACTIVE,
    CASES,
    DB,
    DEVICE,
    GRANT,
    SET,
    TABLE,
    TEMPLATE,
    USER,
    VIEW,
    Operation,
    world_for,
)

KEPT = [case for case in CASES if KINDS[case[1][0]].keeps]
REVERSIBLE = [case for case in CASES if not KINDS[case[1][0]].keeps]


def names(cases: list[tuple[list[Operation], Operation]]) -> list[str]:
    return [kind for _, (kind, _) in cases]


@pytest.mark.parametrize(("before", "operation"), REVERSIBLE, ids=names(REVERSIBLE))
async def test_refused_release_restores_all_rows_exactly(before: list[Operation], operation: Operation) -> None:
    world = await world_for(before)
    there = world.catalog()
    world.refusing = True
    kind, request = operation
    done = await world.do(kind, **request)
    assert done.state is ProcedureState.ROLLED_BACK
    assert done.failed is not None
    assert "n9 can't fence itself" in done.failed.text
    assert world.catalog() == there
    world.refusing = False
    assert (await world.do(kind, "again", **request)).state is ProcedureState.DONE


@pytest.mark.parametrize(("before", "operation"), KEPT, ids=names(KEPT))
async def test_permissions_stay_pending_and_are_never_reported_as_failed(
    before: list[Operation], operation: Operation
) -> None:
    """F8, and point 3 of the review in seed 000: REVOKE is effective once it is written; it must not say otherwise."""
    world = await world_for(before)
    world.refusing = True
    kind, request = operation
    await world.submit("mine", kind, **request)
    for node in ("n1", "n2", "n3"):
        with pytest.raises(ProcedurePending):
            await world.engine(node).run("mine")
        pending = await world.engine().read("mine")
        assert (pending.state, pending.failed) == (ProcedureState.PREPARED, None)
    written = world.below(keys.PERMISSIONS)
    with pytest.raises(NotCancellable, match="already changed permissions"):
        await world.engine().cancel("mine")
    world.refusing = False
    assert (await world.engine("n2").run("mine")).state is ProcedureState.DONE
    assert world.below(keys.PERMISSIONS) == written


async def test_prepared_procedure_can_be_cancelled_and_a_destroying_one_cannot() -> None:
    world = await world_for([DB, TABLE])
    there = world.catalog()
    engine = world.engine()
    await world.submit("first", "drop-table", table="plant.readings")
    await engine._advance(await engine.read("first"))
    assert (await engine.cancel("first")).state is ProcedureState.ROLLED_BACK
    assert world.catalog() == there
    await world.submit("second", "drop-table", table="plant.readings")
    await engine._advance(await engine.read("second"))
    await engine._advance(await engine.read("second"))
    with pytest.raises(NotCancellable, match="is already removing data"):
        await engine.cancel("second")
    await engine.run("second")
    with pytest.raises(NotCancellable, match="has ended"):
        await engine.cancel("second")


async def test_operation_on_a_locked_object_is_rejected_with_the_holders_name() -> None:
    world = await world_for([DB, TABLE, ("create-database", {"database": "plant2"})])
    await world.submit("first", "drop-table", table="plant.readings")
    for kind, request in (
        ("add-column", {"table": "plant.readings", "column": "heat", "type": "double"}),
        ("drop-database", {"database": "plant"}),
        ("set-ttl", {"path": "plant.readings", "ttl_ms": 5}),
        ("rename-table", {"table": "plant.readings", "to": "other"}),
    ):
        with pytest.raises(Busy, match="locked by procedure first") as refused:
            await world.submit("second", kind, **request)
        assert refused.value.retry
    assert (await world.do("drop-database", database="plant2")).state is ProcedureState.DONE
    await world.engine().run("first")
    assert (await world.do("drop-database", database="plant")).state is ProcedureState.DONE


async def test_lock_of_a_database_covers_its_content() -> None:
    world = await world_for([DB, TABLE])
    await world.submit("first", "drop-database", database="plant")
    with pytest.raises(Busy, match="locked by procedure first"):
        await world.submit("second", "add-column", table="plant.readings", column="heat", type="double")


async def test_view_creation_is_rejected_while_its_source_is_locked() -> None:
    """One that is being made may be taken back again: a view of it would point to nothing."""
    world = await world_for([DB])
    await world.submit("first", DEVICE[0], **DEVICE[1])
    engine = world.engine()
    await engine._advance(await engine.read("first"))
    with pytest.raises(Busy, match="locked by procedure first"):
        await world.submit("second", VIEW[0], **VIEW[1])
    await engine.cancel("first")
    assert (await world.do(*VIEW[:1], **VIEW[1])).state is ProcedureState.FAILED


@pytest.mark.parametrize(("before", "operation"), [([DB], TABLE), ([DB], DEVICE), ([DB, TEMPLATE, SET], ACTIVE)])
async def test_object_with_data_is_not_rolled_back(before: list[Operation], operation: Operation) -> None:
    """A client has seen it and written data, which a rollback would leave without a table."""
    world = await world_for(before)
    await world.submit("mine", operation[0], **operation[1])
    engine = world.engine()
    await engine._advance(await engine.read("mine"))
    (made,) = (await engine.read("mine")).made
    world.put(f"{made}m1/1".encode())
    with pytest.raises(NotCancellable, match="already has data"):
        await engine.cancel("mine")
    world.refusing = True
    with pytest.raises(ProcedurePending, match="already has data"):
        await engine.run("mine")
    world.refusing = False
    assert (await engine.run("mine")).state is ProcedureState.DONE
    assert f"{made}m1/1".encode() in world.catalog()


async def test_procedure_id_belongs_to_one_operation() -> None:
    world = await world_for([DB])
    await world.do(TABLE[0], "mine", **TABLE[1])
    with pytest.raises(ProcedureDiffers, match="mine is a create-table with other fields"):
        await world.do("drop-table", "mine", table="plant.readings")


async def test_plan_is_made_again_when_its_rows_change() -> None:
    """A plain client writes the row between reading and writing: that write is not lost."""
    world = await world_for([USER])
    engine = world.engine()
    await world.submit("mine", GRANT[0], **GRANT[1])
    procedure = await engine.read("mine")
    alice = keys.at(keys.USERS, "alice")
    txn = world.txn

    async def meddled(request: object) -> object:
        world.txn = txn  # type: ignore[method-assign]
        world.put(alice, b'{"name":"alice","grants":[],"roles":["ops"]}')
        return await txn(request)  # type: ignore[arg-type]

    world.txn = meddled  # type: ignore[method-assign,assignment]
    assert not await engine._advance(procedure)
    assert (await engine.run("mine")).state is ProcedureState.DONE
    assert world.row(alice)["roles"] == ["ops"]
    assert len(world.row(alice)["grants"]) == 1
