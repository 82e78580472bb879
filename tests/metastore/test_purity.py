"""Tests the guard of `conftest.py`: it must detect a clock and ignore the tests around the core."""

from __future__ import annotations

import time

import pytest

from palisade.metastore import state
from palisade.metastore.requests import Put
from tests.support.meta_driver import Driver


def test_guard_detects_a_clock_read_in_the_core(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def accept(self, stamp):\n    import time\n    time.time()\n"
    names: dict[str, object] = {"__name__": "palisade.metastore.state"}
    exec(source, names)
    monkeypatch.setattr(state.StampClock, "accept", names["accept"])
    with pytest.raises(AssertionError, match=r"metastore\.state calls time\.time"):
        driver.do(Put(b"a", b"1"))


def test_guard_allows_clocks_outside_the_core() -> None:
    assert time.time() > 0
