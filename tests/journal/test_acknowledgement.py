"""What may be acknowledged, and the common part of two journals."""

from __future__ import annotations

import pytest

from palisade.catalog.activation import ReplicaEvent
from palisade.journal.acknowledgement import LAG_MAX, Acknowledgement, reserve_s
from palisade.journal.blocks import JournalEnd
from palisade.journal.history import Run, common_end

ATTACHED, CAUGHT_UP, DETACHED, RAISED = (
    ReplicaEvent.ATTACHED, ReplicaEvent.CAUGHT_UP, ReplicaEvent.DETACHED, ReplicaEvent.SEQUENCE_RAISED,
)  # fmt: skip


def at(*, synced: int, replica: int = 0, events: tuple[ReplicaEvent, ...] = ()) -> Acknowledgement:
    progress = Acknowledgement(0)
    for event in events:
        progress.happens(event)
    progress.appended = progress.synced = synced
    progress.replica_synced = replica
    return progress


@pytest.mark.parametrize(
    ("events", "replica", "expected"),
    [
        ((), 0, 5),
        ((ATTACHED,), 0, 5),
        ((ATTACHED, CAUGHT_UP), 3, 3),
        ((ATTACHED, CAUGHT_UP), 9, 5),
        ((ATTACHED, CAUGHT_UP, DETACHED), 0, 0),
        ((ATTACHED, CAUGHT_UP, DETACHED, RAISED), 0, 5),
    ],
)
def test_entries_are_acknowledged_once_every_copy_that_may_take_over_has_them(
    events: tuple[ReplicaEvent, ...], replica: int, expected: int
) -> None:
    assert at(synced=5, replica=replica, events=events).advance(in_time=True) == expected


def test_nothing_is_acknowledged_out_of_time() -> None:
    progress = at(synced=5)
    assert progress.advance(in_time=False) == 0
    assert progress.advance(in_time=True) == 5


def test_acknowledged_number_never_decreases() -> None:
    progress = at(synced=5)
    progress.advance(in_time=True)
    progress.happens(ATTACHED)
    progress.happens(CAUGHT_UP)
    assert progress.advance(in_time=True) == 5


def test_replica_joins_once_its_lag_is_small() -> None:
    progress = at(synced=LAG_MAX + 10, events=(ATTACHED,))
    assert not progress.may_join
    progress.replica_synced = 10
    assert progress.may_join


@pytest.mark.parametrize("ttl_s", [0.5, 1.0, 10.0])
def test_acknowledgements_end_before_the_lease_at_any_drift(ttl_s: float) -> None:
    """The store's clock fast by rho, the copy's slow by rho: true time of the lease, and of the copy's promise."""
    drift = 0.01
    lease_true_s = ttl_s / (1 + drift)
    promise_true_s = (ttl_s - reserve_s(ttl_s, drift)) / (1 - drift)
    assert promise_true_s <= lease_true_s + 1e-9


@pytest.mark.parametrize(
    ("own", "theirs", "expected"),
    [
        ([], [], 0),
        ([(1, 10)], [], 0),
        ([(1, 10)], [(1, 10)], 10),
        ([(1, 10)], [(1, 7)], 7),
        ([(1, 7)], [(1, 10)], 7),
        ([(1, 7), (2, 9)], [(1, 10)], 7),
        ([(1, 7), (2, 9)], [(1, 7), (2, 8)], 8),
        ([(1, 7), (3, 9)], [(1, 7), (2, 12)], 7),
        ([(3, 9)], [(2, 12)], 0),
    ],
)
def test_common_part_ends_with_the_newest_sequence_of_both(
    own: list[tuple[int, int]], theirs: list[tuple[int, int]], expected: int
) -> None:
    def runs(ends: list[tuple[int, int]]) -> list[Run]:
        return [Run(sequence, last, 1000 * sequence + last) for sequence, last in ends]

    sequences = {number: sequence for sequence, last in reversed(own) for number in range(1, last + 1)}
    found = common_end(runs(own), runs(theirs), lambda number: 1000 * sequences[number] + number)
    assert found.last == expected
    assert found == JournalEnd(expected, 1000 * sequences[expected] + expected if expected else 0)
