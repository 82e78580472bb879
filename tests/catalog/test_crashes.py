"""The engine dies at any call, and another one continues from the record alone: the end is one of those allowed
(F9)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from palisade.catalog import keys
from palisade.catalog.errors import Busy, NotCancellable
from palisade.catalog.procedures import Procedure, ProcedureState
from palisade.metastore.errors import QuotaExceeded
from palisade.metastore.limits import Limits
from palisade.metastore.requests import Compact, DisarmAlarm, Txn
from palisade.metastore.results import TxnResult
from tests.support.catalog_world import CASES, DB, TABLE, CatalogWorld, Crash, Operation, prepared_at, world_for

IDS = [kind for _, (kind, _) in CASES]


async def dies_at(begun: CatalogWorld, operation: Operation, call: int, *, after: bool) -> CatalogWorld | None:
    """A copy of the world after a crash at the call of that number, counted from the start of the procedure; None if
    the procedure ended before that call."""
    world = begun.copied()
    world.crash_at, world.crash_after = world.calls + call, after
    kind, request = operation
    try:
        await world.do(kind, "victim", **request)
    except Crash:
        world.crash_at = 0
        return world
    return None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("before", "operation"), CASES, ids=IDS)
async def test_crash_between_any_two_steps_does_not_change_the_result(
    before: list[Operation], operation: Operation, after: bool
) -> None:
    begun = await world_for(before)
    expected = begun.copied()
    kind, request = operation
    await expected.do(kind, "victim", **request)
    call = 0
    while True:
        call += 1
        world = await dies_at(begun, operation, call, after=after)
        if world is None:
            break
        if "victim" in world.procedures():
            (open_,) = await world.engine("n2").open_ids() or ["victim"]
            done = await world.engine("n2").run(open_)
        else:
            assert world.below(keys.LOCKS) == {}
            done = await world.do(kind, "victim", **request)
        assert done.state is ProcedureState.DONE
        assert world.catalog() == expected.catalog()
    assert call > 6


async def test_repeated_submission_returns_the_same_procedure() -> None:
    """The response to the first one was lost, so the client submits it again."""
    world = await world_for([DB])
    first = await world.do(TABLE[0], "mine", **TABLE[1])
    again = await world.do(TABLE[0], "mine", **TABLE[1])
    assert (again.id, again.state, again.revision) == (first.id, ProcedureState.DONE, first.revision)


@pytest.mark.parametrize("seed", range(60))
async def test_repeated_crashes_do_not_change_the_result(seed: int) -> None:
    """Each successor crashes as well, at another step each time."""
    chance = random.Random(seed)
    before, (kind, request) = chance.choice(CASES)
    world = await world_for(before)
    expected = world.copied()
    await expected.do(kind, "victim", **request)
    for _ in range(50):
        world.crash_at, world.crash_after = world.calls + chance.randrange(1, 12), chance.random() < 0.5
        try:
            done = await world.do(kind, "victim", **request)
            break
        except Crash:
            continue
    assert done.state is ProcedureState.DONE
    assert world.catalog() == expected.catalog()


# DROP's physical delete only after PROCEED, with a crash of the leader before, between and after (scenarios.md).


async def waits_for_proceed(world: CatalogWorld) -> asyncio.Task[Procedure]:
    """DROP TABLE has hidden the table, and waits."""
    world.holding = True
    task = asyncio.create_task(world.do("drop-table", "victim", table="plant.readings"))
    while not is_waiting(world):  # noqa: ASYNC110
        await asyncio.sleep(0)
    return task


def is_waiting(world: CatalogWorld) -> bool:
    victim = world.procedures().get("victim")
    return victim is not None and victim.state is ProcedureState.PREPARED and victim.revision in world.waited_for


def rows_of_table(world: CatalogWorld, data: str) -> int:
    return len(world.below(data.encode()))


async def stop(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("where", ["before", "between", "after"])
async def test_drop_deletes_only_after_proceed_whenever_the_leader_dies(where: str) -> None:
    world = await world_for([DB, TABLE])
    data = world.row(keys.at(keys.TABLES, "plant.readings"))["data"]
    for number in range(600):
        world.put(f"{data}m9/{number:05}".encode())
    leader = await waits_for_proceed(world)
    assert world.row(keys.at(keys.TABLES, "plant.readings"))["dropping"] == "victim"
    assert rows_of_table(world, data) == 618
    if where == "before":
        await stop(leader)
        assert rows_of_table(world, data) == 618
        second = asyncio.create_task(world.engine("n2").run("victim"))
        while len(world.waited_for) < 2 or world.waited_for[-1] != world.waited_for[-2]:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert rows_of_table(world, data) == 618, "the next leader waits for PROCEED as well"
        world.let_go()
        done = await second
    else:
        world.crash_at = world.calls + (2 if where == "between" else 5)
        world.crash_after = where == "after"
        world.let_go()
        with pytest.raises(Crash):
            await leader
        left = rows_of_table(world, data)
        assert left == 618 if where == "between" else 0 < left < 618
        assert world.procedures()["victim"].state is ProcedureState.DESTROYING
        done = await world.engine("n2").run("victim")
    assert done.state is ProcedureState.DONE
    assert done.destroyed == 618
    assert prepared_at(done) <= world.proceeded
    assert rows_of_table(world, data) == 0
    assert world.row(keys.at(keys.TABLES, "plant.readings")) is None


async def test_rows_written_during_a_delete_are_removed() -> None:
    """A writer that does not know of the drop writes once more: no row of the table may be left."""
    world = await world_for([DB, TABLE])
    data = world.row(keys.at(keys.TABLES, "plant.readings"))["data"]
    txn = world.txn

    async def late(request: Txn) -> TxnResult:
        if world.procedures().get("victim") and world.procedures()["victim"].destroyed == 18:
            world.txn = txn  # type: ignore[method-assign]
            world.put(f"{data}m1/late".encode())
        return await txn(request)

    world.txn = late  # type: ignore[method-assign]
    done = await world.do("drop-table", "victim", table="plant.readings")
    assert (done.state, done.destroyed) == (ProcedureState.DONE, 19)
    assert rows_of_table(world, data) == 0


async def test_drop_continues_in_a_full_store_and_empties_it() -> None:
    """M8: a store at its quota takes deletes only; the one that would make room must not wait for room."""
    world = CatalogWorld(limits=Limits(quota_bytes=400_000))
    await world.do_all([DB, TABLE])
    data = world.row(keys.at(keys.TABLES, "plant.readings"))["data"]
    await world.submit("victim", "drop-table", table="plant.readings")
    engine = world.engine()
    while (procedure := await engine.read("victim")).state is not ProcedureState.DESTROYING:
        await engine._advance(procedure)
    number = 0
    while not world.store.alarm:
        world.put(f"{data}m1/{number:05}".encode(), b"x" * 1000)
        number += 1
    with pytest.raises(QuotaExceeded):
        await engine.run("victim")
    assert rows_of_table(world, data) == 0
    assert world.procedures()["victim"].state is ProcedureState.DESTROYING
    world.apply(Compact(world.store.revision))
    while world.store.alarm:
        world.store.collect()
        world.apply(DisarmAlarm())
    assert (await engine.run("victim")).state is ProcedureState.DONE


# Two at a time.


async def pause(world: CatalogWorld) -> None:
    for _ in range(1 + world.chance(3)):
        await asyncio.sleep(0)


@pytest.mark.parametrize("seed", range(150))
async def test_concurrent_runners_and_a_cancel_do_no_harm(seed: int) -> None:
    before, (kind, request) = CASES[seed % len(CASES)]
    expected = await world_for(before)
    world = expected.copied(seed)
    there = expected.catalog()
    await expected.do(kind, "victim", **request)
    await world.submit("victim", kind, **request)

    async def cancel() -> None:
        for _ in range(world.chance(80)):
            await pause(world)
        await world.engine("n3").cancel("victim")

    work = [world.engine("n1").run("victim"), world.engine("n2").run("victim")]
    first, second, cancelled = await asyncio.gather(*work, cancel(), return_exceptions=True)
    assert isinstance(first, Procedure)
    assert isinstance(second, Procedure)
    assert first.state is second.state
    assert first.revision == second.revision
    if isinstance(cancelled, NotCancellable):
        assert first.state is ProcedureState.DONE
        assert world.catalog() == expected.catalog()
    else:
        assert cancelled is None
        assert first.state in (ProcedureState.FAILED, ProcedureState.ROLLED_BACK)
        assert world.catalog() == there


@pytest.mark.parametrize("seed", range(80))
async def test_operations_on_one_object_are_serialized(seed: int) -> None:
    """One is refused with an error that names the holder, or begins later and finds the other's result. A third
    one takes the addition back, if it can: nothing of a database that is gone may come back by that."""
    world = await world_for([DB, TABLE], seed)

    async def cancel() -> None:
        while "add" not in world.procedures() or world.chance(60):
            await pause(world)
        await world.engine("n3").cancel("add")

    canceller = asyncio.create_task(cancel())
    drop, add = await asyncio.gather(
        world.do("drop-database", "drop", database="plant"),
        world.do("add-column", "add", table="plant.readings", column="heat", type="double"),
        return_exceptions=True,
    )
    canceller.cancel()
    await asyncio.wait({canceller})
    for result in (drop, add):
        if isinstance(result, Busy):
            assert "procedure" in str(result)
        else:
            assert isinstance(result, Procedure)
    left = world.catalog()
    if isinstance(drop, Procedure):
        assert list(left) == [b"palisade.data/others/else/1"]
    else:
        assert isinstance(add, Procedure)
        there = "heat" in str(left[keys.at(keys.TABLES, "plant.readings")])
        assert there is (add.state is ProcedureState.DONE)
