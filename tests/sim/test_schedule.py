"""Processes on simulated time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.sim.schedule import FastLoop, FastProcess, FastSimulation


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


def test_time_passes_during_any_sleep() -> None:
    """tests/sim, scenario members, seed 2056: a wait for the last part of a nanosecond never ended."""
    assert max(map(waits, range(100))) < 10


def test_process_killed_during_a_turn_runs_nothing_more() -> None:
    """Scenario disks, seed 3: a callback that a dead task had scheduled ran in the same turn, beside the next start."""
    simulation = FastSimulation(1)
    process = simulation.process("node")
    recorded: list[str] = []

    def die() -> None:
        recorded.append("before")
        process.kill()
        process.loop.call_soon(recorded.append, "after")

    process.loop.call_soon(die)
    simulation.run_for(1.0)
    simulation.close()
    assert recorded == ["before"]


def standing(meanwhile: Callable[[FastSimulation, FastProcess], None]) -> tuple[list[str], FastSimulation]:
    """The actions of a process and of another one, which ticks each second, while the first is suspended in a step."""
    simulation, recorded = FastSimulation(1), list[str]()
    process, other = simulation.process("reader", loop=FastLoop), simulation.process("node", loop=FastLoop)
    assert isinstance(process, FastProcess)

    async def read() -> None:
        recorded.append(f"page at {simulation.now:.0f}")
        meanwhile(simulation, process)
        process.stand_still()
        recorded.append(f"snapshot at {simulation.now:.0f}, {'dead' if process.dead else 'alive'}")
        assert asyncio.current_task() is not None

    async def tick() -> None:
        for _ in range(3):
            await asyncio.sleep(1.0)
            recorded.append(f"tick at {simulation.now:.0f}")

    process.start(read())
    other.start(tick())
    return recorded, simulation


def test_suspended_process_resumes_in_the_middle_of_its_step() -> None:
    recorded, simulation = standing(lambda simulation, process: simulation.after(2.5, process.resume))
    simulation.run_for(1.0)
    assert recorded == ["page at 0", "tick at 1", "tick at 2", "snapshot at 2, alive"]
    simulation.run_for(1.0)
    assert recorded[4:] == ["tick at 3"]
    simulation.close()


def test_suspended_process_has_no_turn_until_its_time_is_over() -> None:
    """Nor when it was paused and resumed, and another process was suspended for longer."""
    simulation, recorded = FastSimulation(1), list[str]()
    one, other = (simulation.process(name, loop=FastLoop) for name in ("one", "other"))
    assert isinstance(one, FastProcess)
    assert isinstance(other, FastProcess)

    def stand(process: FastProcess, seconds: float) -> None:
        process.stand_still_for(seconds)
        recorded.append(f"{process.name} goes on at {simulation.now:.0f}")

    one.loop.call_soon(stand, one, 2.0)
    simulation.after(0.5, lambda: one.call(recorded.append, f"another turn at {simulation.now:.1f}"))
    simulation.after(0.6, one.pause)
    simulation.after(0.7, one.resume)
    simulation.after(1.0, lambda: other.call(stand, other, 3.0))
    simulation.run_for(1.0)
    assert recorded == ["other goes on at 4", "one goes on at 4", "another turn at 0.5"]
    simulation.close()


def test_suspended_process_that_is_paused_continues_when_resumed() -> None:
    simulation, recorded = FastSimulation(1), list[float]()
    process = simulation.process("node", loop=FastLoop)
    assert isinstance(process, FastProcess)

    def stand() -> None:
        process.stand_still_for(1.0)
        recorded.append(simulation.now)

    process.loop.call_soon(stand)
    simulation.after(0.5, process.pause)
    simulation.after(3.0, process.resume)
    simulation.run_for(1.0)
    assert recorded == [3.0]
    simulation.close()


def test_suspended_process_gets_its_kill_as_an_exception() -> None:
    recorded, simulation = standing(lambda simulation, process: simulation.after(1.5, process.kill))
    simulation.run_for(1.0)
    assert recorded == ["page at 0", "tick at 1", "snapshot at 2, dead"]
    simulation.close()


def test_error_during_a_suspension_ends_the_run() -> None:
    def breaks() -> None:
        raise ArithmeticError("meanwhile")

    simulation = FastSimulation(1)
    process = simulation.process("reader", loop=FastLoop)
    assert isinstance(process, FastProcess)

    def read() -> None:
        with contextlib.suppress(ArithmeticError):
            process.stand_still()

    process.loop.call_soon(read)
    simulation.after(1.0, breaks)
    with pytest.raises(ArithmeticError, match="meanwhile"):
        simulation.run_for(2.0)
    simulation.close()
