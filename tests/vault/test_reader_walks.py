"""Fenced reads interrupted by random steps return nothing stale and nothing unreleased (issue 4, F11).

Simulated time, one seed per walk. The walks must detect each planted fault.
"""

from __future__ import annotations

import pytest

from tests.support.fenced_world import Violation, World

WALKS = 150
ANSWERED_MIN = 10
"""Of the 60 reads of each."""
FAULTS = (
    "no_second_look",
    "staged_unpublished",
    "staged_before_commit",
    "no_fenced_at_start",
    "no_gate",
    "pending_overlooked",
    "no_deadline",
    "stale_snapshot",
)


def walks(fault: str = "") -> int:
    """The number of answered reads."""
    return sum(World(seed, fault).walk() for seed in range(WALKS))


def test_random_walk_returns_nothing_stale_or_unreleased() -> None:
    assert walks() > WALKS * ANSWERED_MIN, "walks in which hardly anything is answered prove nothing"


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_detected(fault: str) -> None:
    with pytest.raises(Violation):
        walks(fault)
