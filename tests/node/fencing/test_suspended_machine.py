"""scenarios.md, "Suspend: wall and boot clock jump, monotonic stands still": leases are measured by the clock that runs
during a suspension (F1), on both sides of the fence page: by the node, and by readers in other processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from palisade.base.clock import SystemClock
from palisade.vault import fence_file
from palisade.vault.fence_page import FENCE_BYTES, FencePage

BOOT = b"thisboot"
HOURS_S = 8 * 3600.0
CLOCKS: dict[str, Callable[[], float]] = {
    "of the node": lambda: SystemClock().now(),
    "of the fence page": lambda: fence_file.clock_ns() / 1e9,
    "of readers": lambda: partial(time.clock_gettime_ns, fence_file.CLOCK)() / 1e9,
}


@pytest.fixture
def suspend(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Suspends the machine for eight hours: CLOCK_BOOTTIME advances, CLOCK_MONOTONIC does not."""
    slept_s = 0.0
    real_s, real_ns = time.clock_gettime, time.clock_gettime_ns

    def jump(clock: int) -> float:
        return slept_s if clock == time.CLOCK_BOOTTIME else 0.0

    monkeypatch.setattr(time, "clock_gettime", lambda clock: real_s(clock) + jump(clock))
    monkeypatch.setattr(time, "clock_gettime_ns", lambda clock: real_ns(clock) + int(jump(clock) * 1e9))

    def sleep() -> None:
        nonlocal slept_s
        slept_s += HOURS_S

    return sleep


@pytest.mark.parametrize("name", CLOCKS)
def test_clocks_of_leases_run_while_the_machine_is_suspended(name: str, suspend: Callable[[], None]) -> None:
    before = CLOCKS[name]()
    suspend()
    assert CLOCKS[name]() - before >= HOURS_S


def test_fence_page_is_not_trusted_after_a_suspension(suspend: Callable[[], None]) -> None:
    page = FencePage(bytearray(FENCE_BYTES), BOOT)
    page.serve(fence_file.clock_ns() + 3_000_000_000, 1)
    assert page.fence.serves(fence_file.clock_ns(), BOOT)
    suspend()
    assert not page.fence.serves(fence_file.clock_ns(), BOOT)
