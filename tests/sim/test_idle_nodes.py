"""What a node does while there is nothing to do: each timer wakes it up."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.sim.ambient import PRODUCTION_PACES_EVERY
from tests.sim.scripted import scripted
from tests.support.simulation import Process
from tests.support.virtual_loop import VirtualLoop

IDLE_S = 10.0
TIMERS_MAX = 100.0
"""Timers per second. There were 188 while a follower looked up to 20 times a second for each duty of the leader, and
134 while clients without requests and the connection to the leader did so for themselves."""


def test_idle_follower_sets_few_timers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the polling intervals of production, and with segments."""
    timers = Counter[Process]()
    call_at = VirtualLoop.call_at

    def counted(loop: VirtualLoop, *arguments: Any, **options: Any) -> Any:
        timers[loop.own] += 1
        return call_at(loop, *arguments, **options)

    with scripted(PRODUCTION_PACES_EVERY, segments=True) as script:
        script.run_for(5.0)
        monkeypatch.setattr(VirtualLoop, "call_at", counted)
        script.run_for(IDLE_S)
        assert max(timers[script.process(host)] for host in script.others) / IDLE_S < TIMERS_MAX
