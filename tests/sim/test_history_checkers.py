"""Each checker of histories is proved by histories that violate its property, and accepts a valid one."""

from __future__ import annotations

import pytest

from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    RequestId,
    Txn,
    WatchRequest,
)
from palisade.metastore.results import (
    DeleteRangeResult,
    Event,
    KeyValue,
    PutResult,
    RangeResult,
    RevisionEvents,
    TxnResult,
)
from tests.sim.checkers.of_history import CHECKS
from tests.sim.seen import Ending, Ok, Path, Refused, Unknown, Why
from tests.sim.stories import WATCHED, A, B, Broken, E, Story
from tests.sim.test_leases import BROKEN_LEASES


def good(story: Story) -> None:
    """A small valid history with all kinds of events."""
    first = story.put(A, b"1", request_id=RequestId("w", 1))
    kv = story.state[A]
    story.read(kv, path=Path.VAULT_READER)
    late = story.history.begin("w", "n1", Path.LEADER, Put(A, b"2"), RequestId("w", 2))
    story.history.end(late, Unknown("a timeout"))
    story.read(kv, path=Path.FENCED_API)
    second = story.commit((A, b"2"))
    story.said(Put(A, b"2"), Ok(PutResult(3)), request_id=RequestId("w", 2), attempt=2)
    story.said(Put(A, b"9"), Refused(Why.UNAVAILABLE))
    story.read(kv, path=Path.LOCAL, revision=2)
    story.read(kv, at=2, revision=3)
    both = story.history.begin("w", "n1", Path.LEADER, Txn(success=(Put(B, b"3"), Put(E, b"3"))))
    third = story.commit((B, b"3"), (E, b"3"))
    story.read(story.state[E], key=E)
    story.read(key=B, path=Path.VAULT_READER)
    story.history.end(both, Ok(TxnResult(4, True, (PutResult(4), PutResult(4)))))
    story.read(story.state[A], story.state[B], key=b"s/", revision=4)
    partial = RevisionEvents(4, third.events[:1])
    watch = story.watch(first, second)
    story.history.progressed(watch, 3)
    story.history.watch_ended(watch, Ending.BROKEN)
    gone = story.history.begin("w", "n1", Path.LEADER, DeleteRange(A, prev_kv=True))
    old = story.state[A]
    fourth = story.commit((A, None))
    story.history.end(gone, Ok(DeleteRangeResult(5, 1, (old,))))
    story.watch(partial, fourth, request=WatchRequest(b"s/", b"s0", 4), resumes=watch)
    story.read(path=Path.VAULT_READER)
    story.final()


def test_checkers_accept_a_valid_history() -> None:
    story = Story()
    good(story)
    assert {name: check(story.history) for name, check in CHECKS.items()} == {name: [] for name in CHECKS}


# Invalid histories, and the checkers that must reject them


def acknowledged_and_lost(story: Story) -> None:
    story.said(Put(A, b"1"), Ok(PutResult(2)))


def acknowledged_as_pending_and_lost(story: Story) -> None:
    story.said(Put(A, b"1"), Unknown("not released", 2))


def acknowledged_and_another_value(story: Story) -> None:
    story.commit((A, b"other"))
    story.said(Put(A, b"1"), Ok(PutResult(2)))


def lost_in_the_end(story: Story) -> None:
    story.put(A, b"1")
    first = story.state[A]
    story.put(A, b"2")
    story.final(first)


def behind_in_the_end(story: Story) -> None:
    story.put(A, b"1")
    story.history.final("n1", RangeResult(1, (), False, 0))


def deleted_and_back(story: Story) -> None:
    story.put(A, b"1")
    kv = story.state[A]
    number = story.history.begin("w", "n1", Path.LEADER, DeleteRange(A))
    story.commit((A, None))
    story.history.end(number, Ok(DeleteRangeResult(3, 1)))
    story.final(kv)


def twice(story: Story) -> None:
    story.put(A, b"1", request_id=RequestId("w", 1))
    story.commit((A, b"2"))
    story.commit((A, b"1"))
    story.said(Put(A, b"1"), Ok(PutResult(2)), request_id=RequestId("w", 1), attempt=2)


def another_answer_to_a_retry(story: Story) -> None:
    story.put(A, b"1", request_id=RequestId("w", 1))
    story.said(Put(A, b"1"), Ok(PutResult(3)), request_id=RequestId("w", 1), attempt=2)


def refused_and_done(story: Story) -> None:
    story.said(Put(A, b"1"), Refused(Why.UNAVAILABLE))
    story.commit((A, b"1"))


def one_revision_for_two(story: Story) -> None:
    story.put(A, b"1")
    story.said(Put(B, b"2"), Ok(PutResult(2)))


def stale_at_a_member(story: Story) -> None:
    story.put(A, b"1")
    old = story.state[A]
    story.put(A, b"2")
    story.read(old)


def stale_out_of_a_vault(story: Story) -> None:
    story.put(A, b"1")
    old = story.state[A]
    story.put(A, b"2")
    story.read(old, path=Path.VAULT_READER)


def new_then_old(story: Story) -> None:
    """The write is not acknowledged yet; the first reader sees it, a later one at another node does not."""
    number = story.history.begin("w", "n1", Path.LEADER, Put(A, b"1"))
    story.commit((A, b"1"))
    story.read(story.state[A], path=Path.VAULT_READER)
    story.read(path=Path.FENCED_API)
    story.history.end(number, Ok(PutResult(2)))


def still_there_behind_a_delete(story: Story) -> None:
    story.put(A, b"1")
    old = story.state[A]
    number = story.history.begin("w", "n1", Path.LEADER, DeleteRange(A))
    story.commit((A, None))
    story.history.end(number, Ok(DeleteRangeResult(3, 1)))
    story.read(old, path=Path.FENCED_API)


def a_txn_seen_half(story: Story) -> None:
    number = story.history.begin("w", "n1", Path.LEADER, Txn(success=(Put(A, b"1"), Put(B, b"1"))))
    story.commit((A, b"1"), (B, b"1"))
    story.read(story.state[A], key=b"s/", revision=2)
    story.history.end(number, Ok(TxnResult(2, True, (PutResult(2), PutResult(2)))))


def a_txn_seen_half_by_fenced_reads(story: Story) -> None:
    number = story.history.begin("w", "n1", Path.LEADER, Txn(success=(Put(A, b"1"), Put(B, b"1"), Put(E, b"1"))))
    story.commit((A, b"1"), (B, b"1"), (E, b"1"))
    story.read(story.state[A], path=Path.VAULT_READER)
    story.read(key=B, path=Path.VAULT_READER)
    story.history.end(number, Ok(TxnResult(2, True, (PutResult(2),) * 3)))


def a_compare_that_did_not_hold(story: Story) -> None:
    story.put(A, b"1")
    absent = Compare(A, CompareTarget.VERSION, CompareResult.EQUAL, 0)
    story.commit((A, b"2"))
    story.said(Txn((absent,), (Put(A, b"2"),)), Ok(TxnResult(3, True, (PutResult(3),))))


def from_nowhere(story: Story) -> None:
    story.put(A, b"1")
    story.read(KeyValue(A, b"7", 2, 2, 1, 0), path=Path.LOCAL, revision=2)


def another_past(story: Story) -> None:
    story.put(A, b"1")
    story.put(A, b"2")
    story.read(story.state[A], at=2, revision=3)


def a_past_that_lacks_a_key(story: Story) -> None:
    story.put(A, b"1")
    story.put(B, b"2")
    story.read(story.state[B], key=b"s/", at=3, revision=3)


def a_range_of_two_revisions(story: Story) -> None:
    story.put(A, b"1")
    first = story.state[A]
    story.put(B, b"1")
    story.put(A, b"2")
    story.put(B, b"2")
    story.read(first, story.state[B], key=b"s/", path=Path.LOCAL, revision=5)


def a_delete_of_more_than_there_was(story: Story) -> None:
    story.put(A, b"1")
    number = story.history.begin("w", "n1", Path.LEADER, DeleteRange(b"s/", b"s0"))
    story.commit((A, None))
    story.history.end(number, Ok(DeleteRangeResult(3, 2)))


def a_previous_row_that_was_not(story: Story) -> None:
    story.put(A, b"1")
    number = story.history.begin("w", "n1", Path.LEADER, Put(A, b"2", prev_kv=True))
    story.commit((A, b"2"))
    story.history.end(number, Ok(PutResult(3)))


def a_wrong_verdict(target: CompareTarget, operand: int | bytes) -> Broken:
    """A compare that holds and is reported as one that does not."""

    def broken(story: Story) -> None:
        story.commit((A, b"0"))
        story.commit((A, b"1"), lease=7)
        same = Compare(A, target, CompareResult.EQUAL, operand)
        story.said(Txn((same,), (Range(A),)), Ok(TxnResult(3, False, ())))

    broken.__name__ = f"a compare of {target.name}"
    return broken


def a_watch_out_of_order(story: Story) -> None:
    first, second = story.put(A, b"1"), story.put(A, b"2")
    story.watch(second, first)


def a_watch_with_a_gap(story: Story) -> None:
    first, _, third = story.put(A, b"1"), story.put(A, b"2"), story.put(B, b"3")
    story.watch(first, third)


def a_watch_that_misses_the_first(story: Story) -> None:
    _, second = story.put(A, b"1"), story.put(A, b"2")
    story.watch(second)


def a_watch_with_a_repetition(story: Story) -> None:
    first = story.put(A, b"1")
    story.watch(first, first)


def a_watch_that_splits_a_txn(story: Story) -> None:
    both = story.commit((A, b"1"), (B, b"1"))
    story.watch(RevisionEvents(2, both.events[:1]), RevisionEvents(2, both.events[1:]))


def a_watch_of_half_a_txn(story: Story) -> None:
    both = story.commit((A, b"1"), (B, b"1"))
    story.watch(RevisionEvents(2, both.events[:1]))


def a_watch_of_what_was_before(story: Story) -> None:
    first = story.put(A, b"1")
    story.watch(first, request=WatchRequest(A), began=2)


def a_watch_of_what_is_not_committed(story: Story) -> None:
    number = story.history.watch("v", "n3", WATCHED)
    story.history.delivered(number, (RevisionEvents(2, (Event(False, KeyValue(A, b"1", 2, 2, 1, 0), None),)),))
    story.put(A, b"1")


def a_watch_of_another_value(story: Story) -> None:
    first = story.put(A, b"1")
    story.watch(RevisionEvents(2, (first.events[0]._replace(kv=KeyValue(A, b"7", 2, 2, 1, 0)),)))


def progress_ahead_of_events(story: Story) -> None:
    story.put(A, b"1")
    story.history.progressed(story.watch(), 2)


def progress_ahead_of_all(story: Story) -> None:
    story.history.progressed(story.watch(), 9)


def a_watch_that_skips_as_it_goes_on(story: Story) -> None:
    first, _, third = story.put(A, b"1"), story.put(A, b"2"), story.put(A, b"3")
    number = story.watch(first)
    story.history.watch_ended(number, Ending.BROKEN)
    story.watch(third, request=WatchRequest(b"s/", b"s0", 4), resumes=number)


def a_watch_that_is_refused_for_no_reason(story: Story) -> None:
    story.put(A, b"1")
    story.history.watch_ended(story.watch(), Ending.COMPACTED, 2)


def a_watch_that_is_told_of_a_break_where_there_was_none(story: Story) -> None:
    story.put(A, b"1")
    story.history.watch_ended(story.watch(), Ending.OTHER_HISTORY)


DURABLE: tuple[Broken, ...] = (
    *(acknowledged_and_lost, acknowledged_as_pending_and_lost, acknowledged_and_another_value),
    *(lost_in_the_end, behind_in_the_end, deleted_and_back),
)
STALE: tuple[Broken, ...] = (
    *(stale_at_a_member, stale_out_of_a_vault, new_then_old, still_there_behind_a_delete),
    a_txn_seen_half_by_fenced_reads,
)
WRONG_VERDICTS = (
    a_wrong_verdict(CompareTarget.VERSION, 2),
    a_wrong_verdict(CompareTarget.CREATE, 2),
    a_wrong_verdict(CompareTarget.MOD, 3),
    a_wrong_verdict(CompareTarget.VALUE, b"1"),
    a_wrong_verdict(CompareTarget.LEASE, 7),
)
WATCHES: tuple[Broken, ...] = (
    *(a_watch_out_of_order, a_watch_with_a_gap, a_watch_that_misses_the_first, a_watch_with_a_repetition),
    *(a_watch_that_splits_a_txn, a_watch_of_half_a_txn, a_watch_of_what_was_before, a_watch_of_what_is_not_committed),
    *(a_watch_of_another_value, progress_ahead_of_events, progress_ahead_of_all, a_watch_that_skips_as_it_goes_on),
    *(a_watch_that_is_refused_for_no_reason, a_watch_that_is_told_of_a_break_where_there_was_none),
)
SEEN: dict[str, tuple[Broken, ...]] = {
    "durable": DURABLE,
    "exactly once": (twice, another_answer_to_a_retry, refused_and_done, one_revision_for_two),
    "snapshots": (from_nowhere, another_past, a_past_that_lacks_a_key, a_range_of_two_revisions, a_txn_seen_half),
    "fenced reads": tuple(each for each in STALE if each is not a_txn_seen_half_by_fenced_reads),
    "linearizable": (*STALE, a_txn_seen_half, a_compare_that_did_not_hold),
    "watch contract": WATCHES,
    "answers": (a_delete_of_more_than_there_was, a_previous_row_that_was_not, *WRONG_VERDICTS),
    "leases": BROKEN_LEASES,
}


def test_every_checker_is_proved() -> None:
    assert SEEN.keys() == CHECKS.keys()


@pytest.mark.parametrize(
    ("name", "broken"), [pytest.param(n, b, id=f"{n}: {b.__name__}") for n, stories in SEEN.items() for b in stories]
)
def test_broken_history_is_seen(name: str, broken: Broken) -> None:
    story = Story()
    broken(story)
    found = CHECKS[name](story.history)
    assert found
    assert len("\n".join(found)) < 4000


def test_checker_of_another_property_ignores_watches() -> None:
    for broken in WATCHES:
        story = Story()
        broken(story)
        assert CHECKS["linearizable"](story.history) == []
