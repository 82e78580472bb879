"""A write takes effect at most once, however often it is sent; once if one response says so; never if all refuse (M3).

The effect of a write is identified by the values that only it writes. Retries with the same id have the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palisade.metastore.requests import Put, Txn
from palisade.metastore.results import KeyValue
from tests.sim.checkers.durable import put_by, writes_of
from tests.sim.history import History
from tests.sim.seen import Ok, Operation
from tests.sim.truth import Truth


def check(history: History) -> list[str]:
    truth, requests = Truth(history), by_request(history)
    authors: dict[tuple[bytes, bytes], set[int]] = {}
    for number, attempts in enumerate(requests):
        for put in puts_of(attempts[0].request):
            authors.setdefault((put.key, put.value), set()).add(number)
    places: dict[tuple[bytes, bytes], list[int]] = {}
    keeps, may_keep = _keepers(requests)
    for revision, events in truth.revisions.items():
        for event in events.events:
            key = event.kv.key
            kept = (key, revision) in keeps or (key in may_keep and _has_its_value(event.kv, revision, truth))
            if not event.delete and not kept:
                places.setdefault((event.kv.key, event.kv.value), []).append(revision)
    found = list(_answered_together(requests))
    for attempts in requests:
        own = [put for put in puts_of(attempts[0].request) if len(authors[put.key, put.value]) == 1]
        found += _one_effect(attempts, own, places)
    return found


def by_request(history: History) -> list[list[Operation]]:
    """The attempts of each request, in order; without an id there is one."""
    found: dict[Any, list[Operation]] = {}
    for operation in history.operations():
        if not operation.is_read:
            found.setdefault(operation.request_id or operation.number, []).append(operation)
    return list(found.values())


def puts_of(request: Any) -> list[Put]:
    """All values that it may put, in either branch."""
    return [put for put in all_puts_of(request) if not put.ignore_value]


def all_puts_of(request: Any) -> list[Put]:
    match request:
        case Put():
            return [request]
        case Txn():
            return [put for part in (*request.success, *request.failure) for put in all_puts_of(part)]
    return []


def _keepers(requests: list[list[Operation]]) -> tuple[set[tuple[bytes, int]], set[bytes]]:
    """Writes of a value that existed before (`ignore_value`): (key, revision), and keys of lost responses."""
    keeps: set[tuple[bytes, int]] = set()
    may_keep: set[bytes] = set()
    for attempts in requests:
        request = attempts[0].request
        answers = [attempt.outcome.result for attempt in attempts if isinstance(attempt.outcome, Ok)]
        for answer in answers:
            keeps |= {(put.key, answer.revision) for put in put_by(request, answer) if put.ignore_value}
        if not answers and not all(attempt.refused for attempt in attempts):
            may_keep |= {put.key for put in all_puts_of(request) if put.ignore_value}
    return keeps, may_keep


def _has_its_value(kv: KeyValue, revision: int, truth: Truth) -> bool:
    before = truth.at(kv.key, revision - 1)
    return before is not None and before.value == kv.value


def _named(attempts: list[Operation]) -> str:
    return f"{attempts[0].request_id or f'operation {attempts[0].number}'} of {attempts[0].client}"


def _one_effect(
    attempts: list[Operation], own: list[Put], places: dict[tuple[bytes, bytes], list[int]]
) -> Iterator[str]:
    answers = [attempt.outcome.result for attempt in attempts if isinstance(attempt.outcome, Ok)]
    for other in answers[1:]:
        if other != answers[0]:
            yield f"{_named(attempts)} was answered {answers[0]}, and again {other}"
    written = [(put, revision) for put in own for revision in places.get((put.key, put.value), [])]
    revisions = sorted({revision for _, revision in written})
    if len(revisions) > 1 or len(written) > len(own):
        yield f"{_named(attempts)} took effect at {revisions}, and was asked for once: {attempts[0].request}"
    if revisions and all(attempt.refused for attempt in attempts):
        yield f"{_named(attempts)} was refused by every node asked, and took effect at {revisions}"
    if answers and revisions and revisions != [answers[0].revision]:
        yield f"{_named(attempts)} was answered {answers[0].revision}, and took effect at {revisions}"


def _answered_together(requests: list[list[Operation]]) -> Iterator[str]:
    """A revision belongs to one request."""
    owners: dict[int, str] = {}
    for attempts in requests:
        for attempt in attempts:
            if writes_of(attempt.request, attempt.result):
                revision, name = attempt.result.revision, _named(attempts)
                if owners.setdefault(revision, name) != name:
                    yield f"{owners[revision]} and {name} were both answered revision {revision}"
