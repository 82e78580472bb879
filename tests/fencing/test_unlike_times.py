"""Nodes that were told different times: each is counted with its own (design.md, "all configurable").

The model check has the same in any order: `times_of_before`, `leaders_own_times`, `leaders_own_drift`.
"""

from __future__ import annotations

import pytest

from palisade.fencing.grants import Holding
from palisade.fencing.registry import HolderStanding
from palisade.fencing.release import NotGranted, Registration
from palisade.fencing.timing import FenceTiming
from tests.support.fencing_pair import Pair

LONGER = FenceTiming(fence_s=10.0, drift=0.05, margin_s=0.25)


def test_longer_lease_is_granted_only_after_its_registration_is_replaced() -> None:
    """A leader that granted by the record of the process before would take the lease for over, and it is not."""
    pair = Pair("n1")
    pair.serve()
    pair.timing = LONGER
    pair.holders["n1"] = pair.process("n1", 2)
    pair.sessions.clear()
    hello = pair.connect("n1")
    assert pair.leader.registry.standing(hello) is HolderStanding.OTHER
    pair.join("n1")
    pair.stage("n1")
    pair.now += 0.001
    renew = pair.holders["n1"].renew(pair.now)
    granted = pair.leader.renew(pair.holders["n1"].me, renew, pair.now, quorum_lease=True)
    assert granted is NotGranted.OTHER_TIMES
    assert pair.leader.registry.leave("n1", pair.now).now
    pair.register(hello)
    pair.serve()
    pair.write()
    assert pair.leader.next_time(pair.now) == pytest.approx(pair.now + LONGER.proceed_s(), abs=0.01)


def test_leader_counts_with_the_longer_of_its_own_and_the_holders_times() -> None:
    """Also one that knows a worse bound for clocks than the holder does, or the other way round."""
    bad_clock, good_clock = FenceTiming(drift=0.1, margin_s=0.25), FenceTiming(drift=0.0, margin_s=0.25)
    for leader, holder in ((bad_clock, good_clock), (good_clock, bad_clock)):
        held = Holding(Registration("n1", "v", holder.fence_s, proceed_s=holder.proceed_s()), leader)
        assert held.proceed_s == bad_clock.proceed_s()
    shorter = Holding(Registration("n1", "v", 1.0, proceed_s=1.25), good_clock)
    assert shorter.proceed_s == 1.25, "and not with the length of its own leases"
