"""The recording of a simulation (issue 5): one order, both ends of every operation, the same when loaded from a
file."""

from __future__ import annotations

import pytest

from palisade.metastore.errors import Compacted, LeaseNotFound
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put, Range, RequestId, Txn, WatchRequest
from palisade.metastore.results import Event, KeyValue, PutResult, RangeResult, RevisionEvents, TxnResult
from palisade.raftgroup.errors import NotLeader, OutcomeUnknown
from palisade.vault.errors import Fenced
from palisade.wire.fencing_errors import ReleasePending
from tests.sim.history import History, NotBegun
from tests.sim.history_file import dump, load
from tests.sim.outcomes import outcome_of
from tests.sim.seen import Call, Ending, Moment, Ok, Path, Refused, Unknown, Why

KV = KeyValue(b"a", b"\xff1", 2, 2, 1, 0)


def some_history() -> History:
    now = iter(number / 8 for number in range(100))
    history = History(lambda: next(now))
    put = history.begin("c1", "n1", Path.LEADER, Put(b"a", b"\xff1", lease=7), RequestId("c1", 1))
    txn = history.begin(
        "c2",
        "n2",
        Path.MEMBER,
        Txn((Compare(b"a", CompareTarget.VALUE, CompareResult.EQUAL, b"1"),), (Put(b"b", b"2"),), (Range(b"a"),)),
    )
    watch = history.watch("c3", "n3", WatchRequest(b"a", b"z", 1, filters=frozenset(("put", "delete"))))
    history.watch_began(watch, 1)
    history.end(put, Unknown("a timeout"))
    again = history.begin("c1", "n2", Path.MEMBER, Put(b"a", b"\xff1", lease=7), RequestId("c1", 1), attempt=2)
    history.committed(RevisionEvents(2, (Event(False, KV, None),)))
    history.end(again, Ok(PutResult(2)))
    history.delivered(watch, (RevisionEvents(2, (Event(False, KV, None),)),))
    history.progressed(watch, 2)
    history.end(txn, Ok(TxnResult(2, False, (RangeResult(2, (KV,), False, 1),))))
    history.watch_ended(watch, Ending.COMPACTED, 2)
    history.begin("c2", "n1", Path.FENCED_API, Range(b"a"))
    history.end(history.begin("c2", "n1", Path.VAULT_READER, Range(b"a")), Refused(Why.FENCED, "no lease"))
    history.end(history.begin("c2", "n1", Path.LEADER, Call("create-table", ("t",))), Ok(None))
    history.final("n1", RangeResult(2, (KV,), False, 1))
    return history


def test_history_events_are_in_one_order() -> None:
    history = some_history()
    assert [event.at for event in history.events] == [Moment(n, n / 8) for n in range(len(history.events))]
    first, txn, again, unanswered, refused, call = history.operations()
    assert (first.unknown, again.attempt, again.result, again.began.order) == (True, 2, PutResult(2), 5)
    assert txn.ended is not None
    assert txn.ended.order > again.ended.order > again.began.order > first.ended.order > txn.began.order
    assert unanswered.unknown
    assert unanswered.ended is None
    assert refused.refused
    assert call.result is None
    assert not call.unknown


def test_history_comes_back_from_its_file() -> None:
    history = some_history()
    lines = list(dump(history))
    loaded = load(lines)
    assert loaded.events == history.events
    assert loaded.operations() == history.operations()
    assert loaded.watches() == history.watches()
    assert list(dump(loaded)) == lines
    loaded.begin("c9", "n1", Path.LOCAL, Range(b"a"))
    assert loaded.operations()[-1].number == 8, "numbers go on behind those of the file"


def test_invalid_history_is_refused() -> None:
    lines = list(dump(some_history()))
    with pytest.raises(NotBegun):
        load(lines[1:])
    with pytest.raises(ValueError, match="no part of a history"):
        load(['{"":"Nothing"}'])
    with pytest.raises(ValueError, match="Unterminated"):
        load([lines[0][:-5]])


def test_operation_ends_once_and_only_after_its_begin() -> None:
    history = History()
    number = history.begin("c", "n1", Path.LEADER, Range(b"a"))
    history.end(number, Refused(Why.UNAVAILABLE))
    watch = history.watch("c", "n1", WatchRequest(b"a"))
    history.watch_ended(watch, Ending.CANCELLED)
    for wrong in (
        lambda: history.end(number, Unknown()),
        lambda: history.end(17, Unknown()),
        lambda: history.delivered(watch, ()),
        lambda: history.progressed(number, 3),
    ):
        with pytest.raises(NotBegun):
            wrong()


def test_errors_are_refusals_or_unknown_outcomes() -> None:
    assert outcome_of(NotLeader(None)).why is Why.UNAVAILABLE
    assert outcome_of(Compacted("below 5", 5)).why is Why.COMPACTED
    assert outcome_of(LeaseNotFound("7")).why is Why.REJECTED
    assert outcome_of(Fenced("no lease")).why is Why.FENCED
    assert isinstance(outcome_of(OutcomeUnknown("late")), Unknown)
    assert outcome_of(ReleasePending("late", 9)).revision == 9
    with pytest.raises(ReleasePending):
        outcome_of(ReleasePending("late, at an unknown revision"))
    with pytest.raises(ZeroDivisionError):
        outcome_of(ZeroDivisionError())
