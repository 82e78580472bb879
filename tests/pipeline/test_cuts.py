"""Readers choose revisions that no batch splits (issue 18)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.metastore.lineage import Lineage
from palisade.pipeline.cuts import InsideBatch, cut_after, cut_before, require_cut, splitting
from palisade.pipeline.offsets import Here, Offset, next_end, start_of
from palisade.wire.batch_records import (
    CLOSED,
    OPEN,
    BadBatchRecord,
    BatchRecord,
    KeySpan,
    Window,
    window_of,
)

OURS = Lineage("c1", 1)
CLOSED_WINDOW, OPEN_WINDOW = Window(10, 20), Window(30, 0)
BOTH = (CLOSED_WINDOW, OPEN_WINDOW)


@pytest.mark.parametrize(
    ("revision", "before", "after"),
    [(9, 9, 9), (10, 10, 10), (11, 10, 20), (19, 10, 20), (20, 20, 20), (30, 30, 30), (31, 30, None), (99, 30, None)],
)
def test_revision_within_a_window_is_moved_to_its_ends(revision: int, before: int, after: int | None) -> None:
    assert (cut_before(revision, BOTH), cut_after(revision, BOTH)) == (before, after)


WINDOWS = st.lists(
    st.builds(
        lambda opened, length: Window(opened, opened + length if length else 0), st.integers(1, 30), st.integers(0, 9)
    ),
    max_size=6,
)


@given(WINDOWS, st.integers(1, 45))
def test_cuts_are_the_nearest_revisions_that_no_window_splits(windows: list[Window], revision: int) -> None:
    whole = [each for each in range(60) if splitting(each, windows) is None]
    assert cut_before(revision, windows) == max(each for each in whole if each <= revision)
    after = cut_after(revision, windows)
    if after is not None:
        assert after == min(each for each in whole if each >= revision)
    else:
        assert any(not window.closed for window in windows)


def test_option_that_names_a_revision_within_a_batch_is_refused_with_its_neighbours() -> None:
    require_cut("revision", 20, BOTH)
    with pytest.raises(InsideBatch, match=r"option revision: at revision 15 .* give 10 \(before the batch\) or 20 "):
        require_cut("revision", 15, BOTH)
    with pytest.raises(InsideBatch, match=r"30 .* or a later one"):
        require_cut("revision", 35, BOTH)


def test_stream_reads_a_batch_in_one_micro_batch() -> None:
    here = Here(30, 1, OURS, BOTH, open_batch=True)
    assert next_end(Offset(5, OURS), here, 3, None) == Offset(8, OURS)
    assert next_end(Offset(8, OURS), here, 3, None) == Offset(20, OURS)
    assert next_end(Offset(20, OURS), here, None, None) == Offset(30, OURS)
    assert next_end(Offset(30, OURS), here, 3, None) == Offset(30, OURS)
    assert next_end(Offset(8, OURS), here, 3, 10) == Offset(10, OURS)


def test_stream_that_starts_within_a_batch_reads_all_of_it() -> None:
    here = Here(30, 1, OURS, BOTH, open_batch=True)
    assert start_of(16, here) == Offset(10, OURS)
    assert start_of(21, here) == Offset(20, OURS)
    assert start_of("latest", here) == Offset(30, OURS)
    assert start_of("earliest", Here(30, 15, OURS, BOTH)) == Offset(20, OURS)


P, BAD = KeySpan(b"p/", b"p0"), KeySpan(b"bad/", b"bad0")


def test_records_survive_packing() -> None:
    record = BatchRecord("n", (P, BAD), ("00000-1", "driver"), 7)
    assert BatchRecord.from_bytes("n", record.to_bytes()) == record
    assert window_of(CLOSED + b"n", record.to_bytes(), 9, P) == Window(7, 9)
    assert window_of(OPEN + b"n", record.to_bytes(), 9, KeySpan(b"\0", b"\0")) == Window(9, 0)
    assert window_of(OPEN + b"n", record.to_bytes(), 9, KeySpan(b"p", b"p/")) is None


@given(st.binary(max_size=40))
def test_malformed_record_opens_nothing(packed: bytes) -> None:
    try:
        BatchRecord.from_bytes("n", packed)
    except BadBatchRecord:
        assert window_of(OPEN + b"n", packed, 9, KeySpan(b"\0", b"\0")) is None


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (P, P, True),
        (P, BAD, False),
        (P, KeySpan(b"p/a", b"p/b"), True),
        (P, KeySpan(b"p0", b"q"), False),
        (P, KeySpan(b"a", b"\0"), True),
        (P, KeySpan(b"q", b"\0"), False),
        (KeySpan(b"\0", b"\0"), BAD, True),
    ],
)
def test_spans_overlap(one: KeySpan, other: KeySpan, overlap: bool) -> None:
    assert one.overlaps(other) is other.overlaps(one) is overlap
