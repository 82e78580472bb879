"""The simulation itself: time, processes, suspensions, and repeatability."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import pytest

from tests.support.simulation import Process, Simulation, Stuck


def test_sleep_takes_only_simulated_time() -> None:
    simulation = Simulation(1)
    process = simulation.process("p")

    async def nap() -> float:
        begin = asyncio.get_running_loop().time()
        await asyncio.sleep(3600.0)
        return asyncio.get_running_loop().time() - begin

    assert simulation.run(process, nap(), within_s=4000.0) == pytest.approx(3600.0)
    assert simulation.now == pytest.approx(3600.0)


def test_timeouts_and_queues_work_in_simulated_time() -> None:
    simulation = Simulation(1)
    process = simulation.process("p")

    async def wait() -> str:
        queue: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().call_later(0.5, queue.put_nowait, "there")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await queue.get()
        return await queue.get()

    assert simulation.run(process, wait()) == "there"


def test_simulated_clock_may_run_fast_and_have_an_offset() -> None:
    simulation = Simulation(1)
    fast = simulation.process("fast", rate=1.01, offset_s=500.0)
    simulation.run(fast, asyncio.sleep(1.01))
    assert simulation.now == pytest.approx(1.0)
    assert fast.now() == pytest.approx(501.01)


def test_paused_process_does_nothing_while_its_clock_continues() -> None:
    simulation = Simulation(1)
    process = simulation.process("p")
    seen: list[float] = []
    process.loop.call_later(1.0, lambda: seen.append(simulation.now))
    process.pause()
    simulation.run_for(5.0)
    assert seen == []
    process.resume()
    simulation.run_for(1.0)
    assert seen == [5.0]


def test_killed_process_never_runs_again_not_even_its_cleanup() -> None:
    simulation = Simulation(1)
    process = simulation.process("p")
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(1.0)
            seen.append("worked")
        finally:
            seen.append("cleaned up")

    process.start(work())
    simulation.run_for(0.5)
    process.kill()
    simulation.run_for(5.0)
    assert seen == []
    simulation.close()


def test_unawaited_exception_ends_the_run() -> None:
    simulation = Simulation(7)
    process = simulation.process("p")

    async def broken() -> None:
        raise ZeroDivisionError

    process.start(broken())
    with pytest.raises(AssertionError, match="seed 7, p"):
        simulation.run_for(1.0)


def test_deadlock_ends_the_run_and_names_the_seed() -> None:
    with pytest.raises(Stuck, match="seed 3"):
        Simulation(3).run_until(lambda: False, within_s=1.0)


def test_threads_do_not_exist() -> None:
    simulation = Simulation(1)
    process = simulation.process("p")

    async def thread() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads"):
        simulation.run(process, thread())


@pytest.mark.parametrize("seed", [1, 2])
def test_order_at_equal_times_is_drawn_from_the_seed(seed: int) -> None:
    def order() -> list[str]:
        simulation = Simulation(seed)
        seen: list[str] = []
        for name in "abcdef":
            simulation.process(name, offset_s=0.0).loop.call_later(1.0, seen.append, name)
        simulation.run_for(2.0)
        return seen

    assert order() == order()
    assert sorted(order()) == list("abcdef")
    assert order() != list("abcdef")


def waits(number: int) -> int:
    """How often a process has to sleep until a clock of whole nanoseconds shows that 50 ms are over."""
    simulation = Simulation(number)
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
    simulation = Simulation(1)
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


def standing(meanwhile: Callable[[Simulation, Process], None]) -> tuple[list[str], Simulation]:
    """The actions of a process and of another one, which ticks each second, while the first is suspended in a step."""
    simulation, recorded = Simulation(1), list[str]()
    process, other = simulation.process("reader"), simulation.process("node")

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
    simulation, recorded = Simulation(1), list[str]()
    one, other = (simulation.process(name) for name in ("one", "other"))

    def stand(process: Process, seconds: float) -> None:
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
    simulation, recorded = Simulation(1), list[float]()
    process = simulation.process("node")

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

    simulation = Simulation(1)
    process = simulation.process("reader")

    def read() -> None:
        with contextlib.suppress(ArithmeticError):
            process.stand_still()

    process.loop.call_soon(read)
    simulation.after(1.0, breaks)
    with pytest.raises(ArithmeticError, match="meanwhile"):
        simulation.run_for(2.0)
    simulation.close()
