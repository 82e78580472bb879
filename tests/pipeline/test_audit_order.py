"""The order of all operations by revision, and intervals in which nothing succeeded (issue 18)."""

from __future__ import annotations

from palisade.metastore.requests import DeleteRange, Put, Range
from palisade.metastore.results import DeleteRangeResult, PutResult, RangeResult
from palisade.pipeline.audit.acts import OperationRow, axis_of
from palisade.pipeline.audit.in_memory import AuditLimits, audit
from palisade.pipeline.audit.key_history import NEVER
from palisade.pipeline.audit.order import gaps, out_of_order, times_of
from palisade.wire.recorded_effects import effects_of
from palisade.wire.recorded_history import Note, Recorded, RecordingHeader

MS = 1_000_000


def row(
    began_ms: int, ended_ms: int | None, revision: int = 0, *, writes: bool = True, ok: bool = True
) -> OperationRow:
    end = NEVER if ended_ms is None else ended_ms * MS
    outcome = "ok" if ok else "unknown"
    kind = "put" if writes else "range"
    return OperationRow(
        f"c#{began_ms}", "c", kind, "linearizable", outcome, "", began_ms * MS, end, 1_000_000 + began_ms, revision,
        writes, writes and ok, ok and revision > 0, ok, False,
    )  # fmt: skip


def test_order_accepts_concurrent_operations_in_any_order() -> None:
    rows = [row(0, 10, 5), row(1, 9, 4), row(11, 12, 5, writes=False), row(13, 14, 6)]
    assert not list(out_of_order(times_of(rows)))


def test_order_finds_a_read_of_an_earlier_revision() -> None:
    """A range, or keys without a version in common: only the revisions show it."""
    found = list(out_of_order(times_of([row(0, 1, 5), row(2, 3, 4, writes=False)])))
    assert [(each.kind, each.revision, each.operation, each.wall_ms) for each in found] == [
        ("order", 4, "c#2", 1_000_002)
    ]


def test_order_finds_a_write_without_a_new_revision() -> None:
    assert [each.operation for each in out_of_order(times_of([row(0, 1, 5), row(2, 3, 5)]))] == ["c#2"]
    assert not list(out_of_order(times_of([])))


def test_gaps_are_intervals_with_requests_and_without_success() -> None:
    rows = [
        row(0, 1, 2),
        row(100, 3_000, ok=False),
        row(3_000, None, ok=False),
        row(6_000, 8_100, 3),
        row(8_200, 8_201, 4),
    ]
    (found,) = gaps(times_of(rows), 5_000, writes=True)
    assert (found.what, found.length_ms, found.requests, found.from_wall_ms) == ("writes", 8_000, 3, 1_000_100)
    assert not gaps(times_of(rows), 8_000, writes=True)
    assert not gaps(times_of(rows), 5_000, writes=False)


def test_gaps_ignore_time_without_requests() -> None:
    assert not gaps(times_of([row(0, 1, 2), row(60_000, 60_010, 3)]), 5_000, writes=True)


def test_gap_at_the_end_is_seen() -> None:
    (found,) = gaps(times_of([row(0, 1, 2), row(2, 9_002, ok=False)]), 5_000, writes=True)
    assert found.length_ms == 9_000


def put(number: int, began: int, ended: int, revision: int, value: bytes = b"1") -> Recorded:
    effects = effects_of(Put(b"a", value), PutResult(revision))
    return Recorded(number, began, ended, 0, "put", "linearizable", "ok", revision, "", tuple(effects.wrote), (), ())


def test_times_of_one_clock_are_exact_and_of_two_are_widened() -> None:
    first, second = RecordingHeader("a", "boot-1", 0, 5_000 * MS), RecordingHeader("b", "boot-2", 100 * MS, 5_000 * MS)
    one, two = put(1, 0, 10 * MS, 5), put(2, 111 * MS, 112 * MS, 4)
    assert axis_of([first, first], 100).times(first, one) == (0, 10 * MS)
    assert axis_of([first, second], 100).times(first, one) == (4_900 * MS, 5_110 * MS)
    for error_ms, kinds in ((0, {"order"}), (100, set())):
        found = audit([[first, one], [second, two]], AuditLimits(clock_error_ms=error_ms))
        assert {finding.kind for finding in found.findings} == kinds


def test_dropped_operations_end_the_claim_that_every_writer_was_recorded() -> None:
    header = RecordingHeader("a", "boot", 0, 0)
    nothing = effects_of(Range(b"a"), RangeResult(9, (), False, 0))
    gone = Recorded(2, 20, 30, 0, "range", "linearizable", "ok", 9, "", (), (), tuple(nothing.covered))
    limits = AuditLimits(all_writers=True)
    assert {each.kind for each in audit([[header, put(1, 0, 10, 5), gone]], limits).findings} == {"lost-write"}
    dropped = audit([[header, put(1, 0, 10, 5), Note(dropped=3), gone]], limits)
    assert (dropped.findings, dropped.dropped) == ([], 3)


def test_range_that_lacks_a_key_and_delete_of_a_range_are_acts_on_each_key() -> None:
    header = RecordingHeader("a", "boot", 0, 0)
    empty = effects_of(Range(b"a", b"c"), RangeResult(6, (), False, 0))
    seen = Recorded(2, 20, 30, 0, "range", "linearizable", "ok", 6, "", (), (), tuple(empty.covered))
    assert {
        each.kind for each in audit([[header, put(1, 0, 10, 5), seen]], AuditLimits(all_writers=True)).findings
    } == {"lost-write"}
    gone = effects_of(DeleteRange(b"a", b"c"), DeleteRangeResult(6, 1))
    delete = Recorded(3, 12, 14, 0, "deleterange", "linearizable", "ok", 6, "", tuple(gone.wrote), (), ())
    assert not audit([[header, put(1, 0, 10, 5), delete, seen]], AuditLimits(all_writers=True)).findings
