"""A write takes effect at most once, however often it is sent; once if one answer says so; never if all refuse (M3).

What a write did is known by the values that only it writes. Retries with the same id have the same answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from metastore.requests import Put, Txn
from tests.sim.checkers.durable import writes_of
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
    for revision, events in truth.revisions.items():
        for event in events.events:
            if not event.delete:
                places.setdefault((event.kv.key, event.kv.value), []).append(revision)
    found = list(_answered_together(requests))
    for attempts in requests:
        own = [put for put in puts_of(attempts[0].request) if len(authors[put.key, put.value]) == 1]
        found += _one_effect(attempts, own, places)
    return found


def by_request(history: History) -> list[list[Operation]]:
    """The attempts of each request, in their order; without an id there is one."""
    found: dict[Any, list[Operation]] = {}
    for operation in history.operations():
        if not operation.is_read:
            found.setdefault(operation.request_id or operation.number, []).append(operation)
    return list(found.values())


def puts_of(request: Any) -> list[Put]:
    """All that it may put, in either branch."""
    match request:
        case Put() if not request.ignore_value:
            return [request]
        case Txn():
            return [put for part in (*request.success, *request.failure) for put in puts_of(part)]
    return []


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
        yield f"{_named(attempts)} was refused by everybody asked, and took effect at {revisions}"
    if answers and revisions and revisions != [answers[0].revision]:
        yield f"{_named(attempts)} was answered {answers[0].revision}, and took effect at {revisions}"


def _answered_together(requests: list[list[Operation]]) -> Iterator[str]:
    """A revision is of one request."""
    owners: dict[int, str] = {}
    for attempts in requests:
        for attempt in attempts:
            if writes_of(attempt.request, attempt.result):
                revision, name = attempt.result.revision, _named(attempts)
                if owners.setdefault(revision, name) != name:
                    yield f"{owners[revision]} and {name} were both answered revision {revision}"
