"""Offsets of a stream move forward within one lineage, and never past a compaction."""

from __future__ import annotations

import pytest

from palisade.metastore.lineage import Lineage
from palisade.pipeline.errors import RevisionGone
from palisade.pipeline.offsets import Here, Offset, OtherLineage, next_end, offset_of, start_of

OURS = Lineage("c1", 1)
HERE = Here(100, 40, OURS)


@pytest.mark.parametrize(("start", "revision"), [("latest", 100), ("earliest", 39), (60, 59)])
def test_first_offset_is_before_the_first_revision_that_is_read(start: str | int, revision: int) -> None:
    assert start_of(start, HERE) == Offset(revision, OURS)


@pytest.mark.parametrize(
    ("start", "rows_max", "until", "end"),
    [
        (50, None, None, 100),
        (50, 20, None, 70),
        (50, 80, None, 100),
        (50, 20, 60, 60),
        (50, None, 60, 60),
        (70, None, 60, 70),
        (100, 20, None, 100),
        (39, 10, None, 49),
    ],
)
def test_end_of_a_batch_respects_all_limits(start: int, rows_max: int | None, until: int | None, end: int) -> None:
    assert next_end(Offset(start, OURS), HERE, rows_max, until).revision == end


def test_offset_survives_its_checkpoint() -> None:
    for offset in (Offset(7, OURS), Offset(7, OURS, snapshot=True)):
        assert offset_of(offset.as_json()) == offset
    assert Offset(7, OURS).as_json() == {"revision": 7, "cluster_id": "c1", "generation": 1}


def test_compacted_offset_ends_the_stream() -> None:
    with pytest.raises(RevisionGone, match="39, which was compacted; the oldest that can be read is 40"):
        next_end(Offset(38, OURS), HERE, None, None)


@pytest.mark.parametrize(("start", "revision"), [("latest", 100), ("earliest", 0), (60, 59)])
def test_stream_with_snapshots_begins_before_all_revisions(start: str | int, revision: int) -> None:
    assert start_of(start, HERE, snapshots=True) == Offset(revision, OURS)


@pytest.mark.parametrize(
    ("start", "until", "end"),
    [
        (0, None, Offset(100, OURS, snapshot=True)),
        (38, None, Offset(100, OURS, snapshot=True)),
        (38, 60, Offset(60, OURS, snapshot=True)),
        (20, 39, Offset(100, OURS, snapshot=True)),
        (39, None, Offset(49, OURS)),
        (38, 38, Offset(38, OURS)),
    ],
)
def test_compacted_changes_are_replaced_by_the_state(start: int, until: int | None, end: Offset) -> None:
    """The state at `until` if it is retained: a query with trigger availableNow reads nothing later."""
    assert next_end(Offset(start, OURS), HERE, 10, until, snapshots=True) == end


def test_offset_without_news_stays_the_same_offset_after_a_snapshot() -> None:
    """Spark runs a batch if the end differs from the start in any field."""
    start = Offset(100, OURS, snapshot=True)
    assert next_end(start, HERE, 10, None, snapshots=True).as_json() == start.as_json()
    assert not next_end(start, Here(101, 40, OURS), 10, None, snapshots=True).snapshot


@pytest.mark.parametrize("other", [Lineage("c2", 1), Lineage("c1", 2)])
def test_checkpoint_of_another_lineage_is_refused(other: Lineage) -> None:
    with pytest.raises(OtherLineage, match="new checkpoint"):
        next_end(Offset(50, other), HERE, None, None)
