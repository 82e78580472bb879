"""The guard of `conftest.py` is itself tested: it must see a clock and let the tests around it alone."""

from __future__ import annotations

import time

import pytest

from palisade.metastore import state
from palisade.metastore.requests import Put
from tests.support.meta_driver import Driver


def test_a_clock_read_inside_the_core_is_seen(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    source = "def accept(self, stamp):\n    import time\n    time.time()\n"
    names: dict[str, object] = {"__name__": "palisade.metastore.state"}
    exec(source, names)
    monkeypatch.setattr(state.StampClock, "accept", names["accept"])
    with pytest.raises(AssertionError, match=r"metastore\.state calls time\.time"):
        driver.do(Put(b"a", b"1"))


def test_the_tools_around_the_core_keep_their_clock() -> None:
    assert time.time() > 0
