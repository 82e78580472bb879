"""An acknowledged write is committed, with the acknowledged result, and still exists at the end (M9)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palisade.metastore.requests import DeleteRange, Put, Range
from palisade.metastore.results import DeleteRangeResult, PutResult, RangeResult, TxnResult
from tests.sim.history import History
from tests.sim.kv_spans import steps_of
from tests.sim.seen import Final, Operation, Unknown
from tests.sim.truth import Truth

EVERYTHING = Range(b"\0", b"\0")


def check(history: History) -> list[str]:
    truth = Truth(history)
    acknowledged = [(revision, operation) for operation in history.operations() for revision in revisions_of(operation)]
    found = list(truth.disorder)
    for revision, operation in acknowledged:
        found += _missing(operation, revision, truth)
    newest = max((revision for revision, _ in acknowledged), default=0)
    for final in history.finals():
        found += _differences(final, newest, truth)
    return found


def revisions_of(operation: Operation) -> Iterator[int]:
    """The revisions at which it is reported as committed."""
    if isinstance(operation.outcome, Unknown) and operation.outcome.revision:
        yield operation.outcome.revision
    elif writes_of(operation.request, operation.result) or deletes(operation.result):
        yield operation.result.revision


def writes_of(request: Any, result: Any) -> list[Put]:
    """The values put by an acknowledged write, without values that it keeps."""
    return [put for put in put_by(request, result) if not put.ignore_value]


def put_by(request: Any, result: Any) -> list[Put]:
    """All values put by an acknowledged write."""
    steps = steps_of(request, result)
    return [asked for asked, answered in steps if isinstance(asked, Put) and isinstance(answered, PutResult)]


def deletes(result: Any) -> bool:
    match result:
        case DeleteRangeResult():
            return result.deleted > 0
        case TxnResult():
            return any(map(deletes, result.results))
    return False


def _missing(operation: Operation, revision: int, truth: Truth) -> Iterator[str]:
    committed = truth.revisions.get(revision)
    said = f"operation {operation.number} of {operation.client} was acknowledged by {operation.node} at {revision}"
    if committed is None:
        yield f"{said}, which was never committed: {operation.request}"
        return
    put = {event.kv.key: event.kv.value for event in committed.events if not event.delete}
    for request in writes_of(operation.request, operation.result):
        if put.get(request.key) != request.value:
            yield f"{said}, where {request.key!r} is {put.get(request.key)!r}, and not {request.value!r}"
    if isinstance(operation.request, DeleteRange) and operation.result is not None:
        gone = sum(event.delete for event in committed.events)
        if gone != operation.result.deleted:
            yield f"{said} as a delete of {operation.result.deleted} key(s), and {gone} are deleted there"


def _differences(final: Final, newest: int, truth: Truth) -> Iterator[str]:
    result: RangeResult = final.result
    if result.revision < newest:
        yield f"{final.node} is at revision {result.revision} in the end, and {newest} was acknowledged"
    there = {kv.key: kv for kv in result.kvs}
    for kv in truth.range(EVERYTHING, result.revision):
        held = there.pop(kv.key, None)
        if held != kv:
            yield f"{final.node} has {held} in the end, where {kv} was committed"
    for key in there:
        if key in truth.keys:
            yield f"{final.node} has {key!r} in the end, which was deleted"


def acknowledged(history: History) -> int:
    """The latest revision acknowledged to any write."""
    return history.latest(revisions_of)
