"""What requests and results show about keys (issue 18): no more than what follows with certainty."""

from __future__ import annotations

from io import BytesIO

import pytest

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, SortOrder, Txn
from palisade.metastore.results import DeleteRangeResult, KeyValue, PutResult, RangeResult, TxnResult
from palisade.wire.recorded_effects import Covered, Saw, Wrote, digest_of, effects_of, possible
from palisade.wire.recorded_history import BadHistory, Commit, Note, Recorded, RecordingHeader, entries_of, packed_file

ROW = KeyValue(b"b", b"1", 3, 4, 2, 0)
D = digest_of(b"1")


def test_previous_value_is_of_the_revision_before() -> None:
    found = effects_of(Put(b"b", b"2", prev_kv=True), PutResult(9, ROW))
    assert found.saw == [Saw(b"b", 4, 3, 2, D, True)]
    assert found.covered == [Covered(b"b", b"", True)]
    assert found.wrote == [Wrote(b"b", b"", False, digest_of(b"2"))]


def test_page_covers_its_range_up_to_its_last_row() -> None:
    page = RangeResult(9, (ROW,), True, 5)
    assert effects_of(Range(b"a", b"c", limit=1), page).covered == [Covered(b"a", b"b\0", False)]
    assert not effects_of(Range(b"a", b"c", limit=1, sort_order=SortOrder.DESCEND), page).covered
    assert effects_of(Range(b"a", b"c"), RangeResult(9, (ROW,), False, 1)).covered == [Covered(b"a", b"c", False)]


@pytest.mark.parametrize("request_", [Range(b"a", b"c", min_mod_revision=2), Range(b"a", b"c", count_only=True)])
def test_filtered_or_counted_range_covers_nothing(request_: Range) -> None:
    assert not effects_of(request_, RangeResult(9, (), False, 1)).covered


def test_transaction_that_writes_reads_the_state_before_it() -> None:
    request = Txn(
        (Compare(b"c", CompareTarget.MOD, CompareResult.EQUAL, 6),), (Range(b"b"), Put(b"b", b"2"), Range(b"d"))
    )
    results = (RangeResult(9, (ROW,), False, 1), PutResult(9), RangeResult(9, (), False, 0))
    found = effects_of(request, TxnResult(9, True, results))
    assert found.saw == [Saw(b"c", 6, 0, 0, None, True), Saw(b"b", 4, 3, 2, D, True)]
    assert found.covered == [Covered(b"b", b"", True)]  # d was read after a write of the transaction


def test_failed_compare_shows_nothing_and_the_other_branch_counts() -> None:
    request = Txn((Compare(b"c", CompareTarget.MOD, CompareResult.EQUAL, 6),), (Put(b"x"),), (DeleteRange(b"b"),))
    found = effects_of(request, TxnResult(9, False, (DeleteRangeResult(9, 1),)))
    assert (found.saw, found.covered, found.wrote) == ([], [], [Wrote(b"b", b"", True, None)])


def test_delete_of_nothing_shows_an_empty_range_and_writes_nothing() -> None:
    found = effects_of(DeleteRange(b"a", b"c"), DeleteRangeResult(9, 0))
    assert (found.wrote, found.covered) == ([], [Covered(b"a", b"c", False)])


def test_write_without_a_result_may_have_done_either_branch() -> None:
    assert [each.key for each in possible(Txn((), (Put(b"x"),), (DeleteRange(b"b"),))).wrote] == [b"x", b"b"]


RECORDED = Recorded(
    1, 10, None, 5, "txn", "linearizable", "unknown", 0, "outcome-unknown", (Wrote(b"k", b"", False, D),), (), ()
)
ENTRIES = [RECORDED, Commit(4, ((b"k", False, D),)), Note(dropped=2), Note(feed=(1, 4)), Note(closed=True)]


def test_history_file_is_read_as_written_and_a_torn_end_is_ignored() -> None:
    header = RecordingHeader("c", "boot", 1, 2)
    content = b"".join(packed_file(header, ENTRIES))
    assert list(entries_of(BytesIO(content), "f")) == [header, *ENTRIES]
    assert list(entries_of(BytesIO(content[:-3]), "f")) == [header, *ENTRIES[:-1]]
    assert list(entries_of(BytesIO(b""), "f")) == []


EMPTY_FILE = b"".join(packed_file(RecordingHeader("c", "b", 1, 2), []))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"text file\n", "not a recorded history"),
        (EMPTY_FILE.replace(b"version\x01", b"version\x02"), "use a newer one"),
        (EMPTY_FILE + b"\x07", "damaged"),
    ],
)
def test_file_of_another_kind_is_refused_by_name(content: bytes, reason: str) -> None:
    with pytest.raises(BadHistory, match=rf"f\.history.*{reason}"):
        list(entries_of(BytesIO(content), "f.history"))
