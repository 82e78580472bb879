"""The judge of histories of real processes accepts results of one store and nothing else; an undecided history does not
pass. No process is needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from palisade.metastore.requests import FROM_KEY, Put, Range, WatchRequest
from palisade.metastore.results import Event as Change
from palisade.metastore.results import KeyValue, PutResult, RangeResult, RevisionEvents
from tests.faults import judge
from tests.faults.asking import EVENTUAL, ROUND, STRICT, Asking, is_mixed
from tests.faults.judge import judged, woven
from tests.faults.watchers import Watcher
from tests.faults.witnesses import Witnesses
from tests.sim.checkers import linearizable
from tests.sim.history import History
from tests.sim.history_file import dump
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Begun, Committed, Ended, Event, Moment, Ok, Outcome, Unknown, WatchDelivered
from tests.sim.seen import Path as Way
from tests.support.meta_driver import Driver
from tests.support.processes import NodeProcess, until

KEY = STRICT + b"mixed/0/a"
CLIENTS = 6


def recorded(operations: int, lost: float, seed: int = 1) -> History:
    """Clients of one store; a share of the responses to writes is lost, some before and some after they took effect."""
    driver, chance, history = Driver(), Random(seed), History()
    asking = Asking("mixed", chance, lambda: driver.store.revision)
    watch = history.watch("w", "n1", WatchRequest(asking.prefixes[0], asking.prefixes[0][:-1] + b"0", 2, True))
    changes = driver.store.watches.open(
        WatchRequest(asking.prefixes[0], asking.prefixes[0][:-1] + b"0", 2, True), lambda: None
    )
    under_way: list[tuple[int, Any, Any]] = []
    for count in range(operations):
        while len(under_way) >= CLIENTS or (under_way and chance.random() < 0.4):
            number, request, result = under_way.pop(chance.randrange(len(under_way)))
            is_lost = not isinstance(request, Range) and chance.random() < lost
            if result is None and not (is_lost and chance.random() < 0.5):
                result = done(driver, request)
            outcome: Outcome = Unknown("a timeout") if is_lost else result
            history.end(number, outcome)
            asking.observe(request, outcome)
            if batch := changes.poll(1000, 1 << 20):
                history.delivered(watch, tuple(batch))
        request = asking.anything()
        at_once = chance.random() < 0.5
        number = history.begin(f"c{count % CLIENTS}", "n1", Way.LOCAL if is_local(request) else Way.HTTP, request)
        under_way.append((number, request, done(driver, request) if at_once else None))
    history.final("n1", driver.store.range(Range(b"/", b"0")))
    everything = driver.store.watches.open(WatchRequest(b"\0", FROM_KEY, 2), lambda: None)
    revisions: list[RevisionEvents] = []
    while batch := everything.poll(1000, 1 << 24):
        revisions += batch
    return woven(history, revisions)


def done(driver: Driver, request: Any) -> Outcome:
    try:
        return Ok(driver.store.range(request) if isinstance(request, Range) else driver.do(request))
    except EXPECTED as error:
        return outcome_of(error)


def is_local(request: Any) -> bool:
    return isinstance(request, Range) and request.serializable


def test_many_operations_are_judged_though_a_fifth_of_the_answers_is_lost() -> None:
    """One hot register with 1,500 operations would not be decided: the requested keys change soon enough."""
    history = recorded(3000, lost=0.2)
    assert sum(each.unknown for each in history.operations()) > 200
    assert judged(history) == []


def test_undecided_history_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    short = partial(linearizable.check, strict=(STRICT,), steps_max=10)
    monkeypatch.setitem(judge.CHECKS, "linearizable", short)
    assert any("gave up" in each for each in judged(recorded(200, lost=0.2)))


# Invalid histories


def changed(history: History, kind: type, change: Callable[[Any], Event | None]) -> History:
    """After the middle, the first event of that kind that `change` can change: the others stay as they are."""
    events = list(history.events)
    for place in range(len(events) // 2, len(events)):
        if isinstance(events[place], kind) and (after := change(events[place])) is not None:
            events[place] = after
            return History.of(events)
    raise AssertionError(f"nothing to change: {kind}")


def lost(event: Committed) -> Event | None:
    is_put = any(not each.delete for each in event.events.events)
    return replace(event, events=replace(event.events, events=())) if is_put else None


def left_out(event: WatchDelivered) -> Event | None:
    return replace(event, batch=event.batch[1:]) if len(event.batch) > 1 else None


def of_another_revision(event: Ended) -> Event | None:
    result = event.outcome.result if isinstance(event.outcome, Ok) else None
    if not isinstance(result, PutResult):
        return None
    return replace(event, outcome=Ok(replace(result, revision=result.revision - 1)))


def of_another_value(event: Ended) -> Event | None:
    result = event.outcome.result if isinstance(event.outcome, Ok) else None
    if not isinstance(result, RangeResult) or not result.kvs:
        return None
    other = (result.kvs[0]._replace(value=b"other"), *result.kvs[1:])
    return replace(event, outcome=Ok(replace(result, kvs=other)))


BROKEN: tuple[tuple[str, type, Callable[[Any], Event | None]], ...] = (
    ("durable", Committed, lost),
    ("watch contract", WatchDelivered, left_out),
    ("exactly once", Ended, of_another_revision),
    ("snapshots", Ended, of_another_value),
)


@pytest.mark.parametrize(("checker", "kind", "change"), BROKEN)
def test_invalid_history_is_refused(checker: str, kind: type, change: Any) -> None:
    broken = changed(recorded(400, lost=0.0), kind, change)
    assert any(each.startswith(f"{checker}: ") for each in judged(broken)), judged(broken)


def two_puts() -> tuple[History, list[RevisionEvents]]:
    """Both are acknowledged."""
    history, driver = History(), Driver()
    for value in (b"1", b"2"):
        number = history.begin("c", "n1", Way.HTTP, Put(KEY, value))
        history.end(number, Ok(driver.do(Put(KEY, value))))
    return history, list(driver.store.watches.open(WatchRequest(b"\0", FROM_KEY, 2), lambda: None).poll(10, 1 << 20))


def read(history: History, value: bytes, revision: int, way: Way = Way.FENCED_API) -> None:
    kv = KeyValue(KEY, value, 2, revision, revision - 1, 0)
    history.end(history.begin("r", "n2", way, Range(KEY)), Ok(RangeResult(0, (kv,), False, 1)))


def test_old_fenced_read_is_refused() -> None:
    """The strict prefix here differs from that of the simulator."""
    history, revisions = two_puts()
    read(history, b"2", 3)
    assert judged(woven(history, revisions)) == []
    read(history, b"1", 2)
    found = judged(woven(history, revisions))
    assert [each.partition(": ")[0] for each in found] == ["fenced reads", "linearizable"], found


def test_revision_is_committed_after_its_request_and_the_previous_revision() -> None:
    history, revisions = two_puts()
    judgeable = woven(history, revisions)
    assert [type(event) for event in judgeable.events] == [Begun, Committed, Ended, Begun, Committed, Ended]
    assert [event.at for event in judgeable.events] == [Moment(order, 0.0) for order in range(6)]


def test_value_read_before_its_request_is_refused() -> None:
    history, revisions = two_puts()
    early = History()
    read(early, b"1", 2)
    events = [*early.events, *(replace(each, number=9 + each.number) for each in history.events[:2])]  # type: ignore[call-arg]
    early = History.of(replace(each, at=Moment(order, 0.0)) for order, each in enumerate(events))
    assert any("was shown" in each for each in judged(woven(early, revisions[:1])))


# The file


def test_history_in_a_file_is_judged_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = recorded(300, lost=0.0)
    for name, history in (("good", good), ("broken", changed(good, Committed, lost))):
        (tmp_path / name).write_text("\n".join(dump(history)), encoding="ascii")
    for name, code in (("good", 0), ("broken", 1)):
        monkeypatch.setattr("sys.argv", ["judge", str(tmp_path / name)])
        assert judge.main() == code
    assert "durable: " in capsys.readouterr().out


# How it is recorded


def test_each_round_uses_other_keys() -> None:
    asking = Asking("mixed", Random(1), lambda: 1)
    rounds = [[asking.fenced() for _ in range(ROUND - 1)], [asking.fenced() for _ in range(ROUND)]]
    single = [{each.key for each in asked if not is_mixed(each)} for asked in rounds]
    assert [{key.split(b"/")[3] for key in keys} for keys in single] == [{b"0"}, {b"1"}]


def test_silent_member_is_named_while_others_continue() -> None:
    _, (first, second) = two_puts()
    witnesses = Witnesses([])
    witnesses.first = 2
    for by, events in (("n1", first), ("n2", first), ("n1", second)):
        witnesses.report(by, events)
    assert witnesses.silent(first.revision) == []
    assert witnesses.silent(second.revision) == [
        "n2 has reported nothing after revision 2, and 3 is the newest",
    ]


async def test_silent_watch_is_named_with_its_last_revision(tmp_path: Path) -> None:
    """Its members send nothing: the watch begins, and receives no change."""
    history, nodes = History(), [NodeProcess(tmp_path, name) for name in ("n1", "n2")]
    watcher = Watcher("w", 0, KEY, nodes, history)
    running = asyncio.create_task(watcher.run(5))
    await until(history.watches, "a watch")
    watcher.stay()
    assert watcher.silent(4) is None
    assert watcher.silent(7) == (
        "watch 1 of w, which began at n2, received nothing after revision 4, and 7 is in its range"
    )
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_members_must_agree_and_omit_nothing() -> None:
    _, (first, second) = two_puts()
    witnesses = Witnesses([])
    witnesses.first = 2
    for by, events in (("n1", first), ("n1", second), ("n2", first)):
        witnesses.report(by, events)
    assert witnesses.disagreement == []
    witnesses.report("n2", replace(second, events=()))
    witnesses.report("n3", second)
    assert [each.partition(" is ")[0] for each in witnesses.disagreement] == [
        "revision 3",
        "n3 reports revision 3 where 2",
    ]


def test_range_of_two_revisions_is_a_violation() -> None:
    """As a removed member answered it: strict keys were updated there, others were not (issue 16)."""
    strict, eventual = STRICT + b"mixed/0/a", EVENTUAL + b"mixed/0/a"
    asking, history = Asking("mixed", Random(1), lambda: 1), History()
    revisions = []
    for revision, (key, value) in enumerate([(strict, b"1"), (eventual, b"2"), (eventual, b"3"), (strict, b"4")], 2):
        number = history.begin("c1", "n1", Way.HTTP, Put(key, value))
        history.end(number, Ok(PutResult(revision, None)))
        kv = KeyValue(key, value, 2 if key == strict else 3, revision, 1 if revision < 4 else 2, 0)
        revisions.append(RevisionEvents(revision, (Change(False, kv, None),)))
    old = KeyValue(eventual, b"2", 3, 3, 1, 0)
    new = KeyValue(strict, b"4", 2, 5, 2, 0)
    for way in (Way.FENCED_API, Way.VAULT_READER, Way.HTTP):
        number = history.begin("c2", "n3", way, asking.mixed())
        history.end(number, Ok(RangeResult(5, (old, new), False, 2)))
    found = [each for each in judged(woven(history, revisions)) if each.startswith("snapshots: ")]
    assert len(found) == 3, found
