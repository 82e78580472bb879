"""Nodes with different fencing times: each is counted with its own (design.md, "all configurable").

The model check has the same in any order: `times_of_before`, `leaders_own_times`, `leaders_own_drift`.
"""

from __future__ import annotations

import pytest

from palisade.fencing.messages import HolderPhase, Renew
from palisade.fencing.registry import HolderStanding, Holding
from palisade.fencing.release import NotGranted, Registration
from palisade.fencing.timing import FenceTiming
from tests.support.fencing_pair import Pair

LONGER = FenceTiming(fence_s=10.0, drift=0.05, margin_s=0.25)


def test_longer_lease_is_granted_only_after_its_registration_is_replaced() -> None:
    """A leader that granted by the record of the process before would take the lease for over, and it is not."""
    pair = Pair("n1")
    pair.serve()
    pair.restart("n1", LONGER)
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


@pytest.mark.parametrize(
    ("lease_s", "proceed_s", "covered"),
    [(3.0, 3.5, True), (2.0, 3.0, True), (3.0, 3.6, False), (3.1, 3.5, False), (2.0, 3.6, False), (3.1, 3.4, False)],
)
def test_registration_covers_no_lease_with_longer_times(lease_s: float, proceed_s: float, covered: bool) -> None:
    """Of either time: the drift bound and the margin of the holder are in `proceed_s` alone (issue 16)."""
    registration = Registration("n1", "v", 3.0, proceed_s=3.5)
    renew = Renew(100.0, 1, HolderPhase.ACTIVE, True, lease_s, proceed_s)
    assert registration.covers(renew) is covered


def test_lease_of_the_same_length_with_a_worse_clock_is_granted_only_after_its_registration_is_replaced() -> None:
    """By the old record, a leader would take the lease for over while the slow clock of the holder still counts."""
    pair = Pair("n1")
    pair.serve()
    pair.restart("n1", FenceTiming(fence_s=pair.timing.fence_s, drift=0.1, margin_s=pair.timing.margin_s))
    pair.connect("n1")
    pair.join("n1")
    pair.stage("n1")
    pair.now += 0.001
    renew = pair.holders["n1"].renew(pair.now)
    assert renew.lease_s == pair.leader.registry.of("n1").registration.lease_s  # type: ignore[union-attr]
    granted = pair.leader.renew(pair.holders["n1"].me, renew, pair.now, quorum_lease=True)
    assert granted is NotGranted.OTHER_TIMES


def test_leader_counts_with_the_longer_of_its_own_and_the_holders_times() -> None:
    """Also one that knows a worse bound for clocks than the holder does, or the other way round."""
    bad_clock, good_clock = FenceTiming(drift=0.1, margin_s=0.25), FenceTiming(drift=0.0, margin_s=0.25)
    for leader, holder in ((bad_clock, good_clock), (good_clock, bad_clock)):
        held = Holding(Registration("n1", "v", holder.fence_s, proceed_s=holder.proceed_s()), leader)
        assert held.proceed_s == bad_clock.proceed_s()
    shorter = Holding(Registration("n1", "v", 1.0, proceed_s=1.25), good_clock)
    assert shorter.proceed_s == 1.25, "and not with the length of its own leases"
