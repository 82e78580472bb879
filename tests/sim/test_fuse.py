"""A fuse kills or pauses a process between two callbacks of a turn (issue 5, "crash at any await point")."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.ports import Entry
from tests.sim.fuse import light_fuse, put_out
from tests.support.simulation import Process, Simulation
from tests.support.virtual_loop import VirtualLoop


def counting(simulation: Simulation, seen: list[int], tasks: int) -> Process:
    """A process of so many tasks, each of which awaits at every step."""
    process = simulation.process("p", loop=VirtualLoop)

    async def steps(first: int) -> None:
        for number in range(5):
            seen.append(first + number)
            await asyncio.sleep(0)

    for task in range(tasks):
        process.start(steps(10 * task))
    return process


@pytest.mark.parametrize("calls", range(1, 13))
def test_fuse_stops_a_turn_at_its_place(calls: int) -> None:
    simulation, seen, whole = Simulation(1), list[int](), list[int]()
    counting(simulation, whole, 3)
    simulation.run_for(1.0)
    process = counting(simulation, seen, 3)
    light_fuse(process, calls, process.kill)
    simulation.run_for(1.0)
    assert process.dead
    assert seen == whole[: len(seen)]
    assert len(seen) == 3 + calls - 1
    simulation.close()


@pytest.mark.parametrize("calls", range(1, 13))
def test_process_paused_by_a_fuse_continues_with_the_rest(calls: int) -> None:
    simulation, seen, whole = Simulation(1), list[int](), list[int]()
    counting(simulation, whole, 3)
    simulation.run_for(1.0)
    process = counting(simulation, seen, 3)
    light_fuse(process, calls, process.pause)
    simulation.run_for(1.0)
    assert seen == whole[: 3 + calls - 1]
    process.resume()
    simulation.run_for(1.0)
    assert seen == whole
    simulation.close()


def test_disarmed_fuse_does_nothing() -> None:
    simulation, seen = Simulation(1), list[int]()
    process = counting(simulation, seen, 2)
    light_fuse(process, 3, process.kill)
    put_out(process)
    simulation.run_for(1.0)
    assert not process.dead
    assert len(seen) == 10
    simulation.close()


@pytest.mark.parametrize("lands", [True, False])
def test_sync_during_a_kill_is_durable_or_not(lands: bool) -> None:
    simulation = Simulation(1)
    process = simulation.process("p", loop=VirtualLoop)
    journal = MemoryJournal(lambda: asyncio.sleep(1.0))

    async def write() -> None:
        journal.append(Entry(b"one", 1, 1))
        await journal.sync()

    process.start(write())
    simulation.run_for(0.5)
    assert journal.is_syncing
    process.kill()
    end: Callable[[], None] = journal.land if lands else lambda: None
    end()
    journal.crash()
    assert journal.last.index == int(lands)
    assert not journal.is_syncing
    simulation.close()


def test_fired_fuse_cannot_be_disarmed() -> None:
    """Storm 210149: the process died of it when all faults were to be removed, and was not restarted."""
    simulation, seen = Simulation(1), list[int]()
    process = counting(simulation, seen, 1)
    light_fuse(process, 1, process.kill)
    process.loop.call_soon(lambda: None)
    put_out(process)
    simulation.run_for(1.0)
    assert not process.dead
    assert len(seen) == 5
    simulation.close()


def test_later_fuse_replaces_a_fired_one() -> None:
    simulation, seen, died = Simulation(1), list[int](), list[int]()
    process = counting(simulation, seen, 1)
    light_fuse(process, 1, lambda: died.append(1))
    process.loop.call_soon(lambda: None)
    light_fuse(process, 2, lambda: died.append(2))
    simulation.run_for(1.0)
    assert died == [2]
    simulation.close()
