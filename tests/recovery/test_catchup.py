"""Catching up ends for every behaviour of the writers (issue 3, R4, R6; scenarios.md: "never a livelock")."""

from __future__ import annotations

import pytest

from palisade.recovery.catchup import (
    CatchUpProgress,
    Difference,
    Next,
    acceptable,
    after_round,
    after_snapshot,
    next_step,
)
from palisade.recovery.cost_estimate import Rates, replay_estimate, snapshot_estimate


def test_catch_up_ends_when_the_difference_is_acceptable() -> None:
    assert next_step(CatchUpProgress(), 100, behind=100) is Next.CAUGHT_UP
    assert next_step(CatchUpProgress(), 100, behind=101) is Next.REPLAY
    assert next_step(CatchUpProgress(), 0, behind=0) is Next.CAUGHT_UP


def test_difference_changes_at_run_time_within_its_range() -> None:
    difference = Difference()
    assert difference.value == 100
    difference.value = 5
    assert difference.value == 5
    with pytest.raises(ValueError, match="not -1"):
        difference.value = -1
    assert difference.value == 5


@pytest.mark.parametrize("growth", [0.5, 0.99, 1.0, 1.5, 10.0])
@pytest.mark.parametrize("difference", [0, 1, 100])
def test_catch_up_ends_at_every_speed_of_the_writers(growth: float, difference: int) -> None:
    """`growth`: the number of revisions written while one is replayed."""
    progress, behind, rounds, snapshots = CatchUpProgress(), 5_000, 0, 0
    while (step := next_step(progress, difference, behind=behind)) is not Next.CAUGHT_UP:
        rounds += 1
        assert rounds < 2_000
        behind = int(behind * growth) + 1 if growth >= 1 else int(behind * growth)
        if step is Next.SNAPSHOT:
            snapshots += 1
            progress, behind = after_snapshot(progress), int(1_000 * growth)
        else:
            progress = after_round(progress, behind)
    assert snapshots <= 1
    assert (snapshots == 1) == (growth >= 1)


def test_threshold_stays_while_rounds_make_progress() -> None:
    progress = CatchUpProgress()
    for behind in range(5_000, 200, -1):
        progress = after_round(progress, behind)
        assert acceptable(progress, 100) == 100
        assert next_step(progress, 100, behind=behind) is Next.REPLAY


def test_replay_of_many_revisions_costs_more_than_a_small_snapshot() -> None:
    rates = Rates()
    assert replay_estimate(1_000, rates) < snapshot_estimate(1_000, 1_000_000, rates)
    assert replay_estimate(5_000_000, rates) > snapshot_estimate(5_000_000, 1_000, rates)
    assert replay_estimate(1_000, rates, measured_s=0.5) > snapshot_estimate(1_000, 1_000_000, rates)
