"""The replicated clock: elapsed time of the leader, never wall time (M5)."""

from __future__ import annotations

import pytest

from palisade.base.invariant import InvariantViolated
from palisade.metastore.requests import Put
from tests.support.meta_driver import Driver


def test_lease_clock_follows_elapsed_time_and_ignores_wall_time(driver: Driver) -> None:
    store = driver.store
    store.lead(now=1000.0, wall_ms=5_000)
    assert store.stamp(now=1002.5, wall_ms=9_000_000) == [9_000_000, 2_500]
    assert store.clock_ms(now=1002.5) == 2_500


def test_stamps_never_go_back(driver: Driver) -> None:
    driver.wait(10_000)
    driver.do(Put(b"a"))
    driver.store.lead(now=5.0, wall_ms=17)
    wall_ms, clock_ms = driver.store.stamp(now=5.0, wall_ms=17)
    assert (wall_ms, clock_ms) == (1_700_000_000_000 + driver.clock_ms, driver.clock_ms)
    driver.apply([3, 3], [])
    assert driver.store.stamp(now=5.0, wall_ms=17) == [wall_ms, clock_ms]


def test_malformed_stamp_stops_the_node(driver: Driver) -> None:
    for stamp in ([1], [1, "2"], "ab", [1, -1]):
        with pytest.raises(InvariantViolated, match="stamp"):
            driver.store.apply(1, 1, stamp, [])  # type: ignore[arg-type]


def test_entry_applied_twice_stops_the_node(driver: Driver) -> None:
    """Fault 12 of PySyncObj: never a second application."""
    driver.do(Put(b"a"))
    with pytest.raises(InvariantViolated, match="entry 1 is applied after entry 1"):
        driver.store.apply(1, 1, [1, 1], [])
    with pytest.raises(InvariantViolated):
        driver.store.skip(1, 1)
