"""The simulation itself: time, processes, and repeatability."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.simulation import Simulation, Stuck


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
