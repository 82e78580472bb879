"""Processes on simulated time."""

from __future__ import annotations

import asyncio

from tests.sim.schedule import FastSimulation


def waits(number: int) -> int:
    """How often a process has to sleep until a clock of whole nanoseconds shows that 50 ms are over."""
    simulation = FastSimulation(number)
    process = simulation.process("reader", rate=1 + number * 1.3e-5, offset_s=1000 / (number + 1))

    def shown() -> float:
        return int(process.now() * 1e9) / 1e9

    async def wait() -> int:
        until, times = process.now() + 0.05, 0
        while (left := until - shown()) > 0 and times < 100:
            times += 1
            await asyncio.sleep(min(0.02, left))
        return times

    times: int = simulation.run(process, wait(), within_s=1.0)
    simulation.close()
    return times


def test_time_passes_while_somebody_sleeps_however_short() -> None:
    """tests/sim, scenario members, seed 2056: a wait for the last part of a nanosecond never ended."""
    assert max(map(waits, range(100))) < 10


def test_who_is_killed_in_the_middle_of_a_turn_runs_nothing_more() -> None:
    """Scenario disks, seed 3: what a task that had died put on its loop ran in the same turn, beside the next start."""
    simulation = FastSimulation(1)
    process = simulation.process("node")
    told: list[str] = []

    def die() -> None:
        told.append("before")
        process.kill()
        process.loop.call_soon(told.append, "after")

    process.loop.call_soon(die)
    simulation.run_for(1.0)
    simulation.close()
    assert told == ["before"]
