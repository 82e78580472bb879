"""Every read is of one revision: the requested one, or the one that the response names (M1).

Of the latest state, of the past, local or not, fenced, ranges in pages: all rows are the versions of that revision,
none is missing. A fenced read of one key names no revision here. And every row in any result, on any path, was
committed exactly like that before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from palisade.metastore.requests import Range, SortOrder, SortTarget
from palisade.metastore.results import KeyValue, RangeResult
from tests.sim.history import History
from tests.sim.kv_spans import rows_of
from tests.sim.seen import FENCED, Operation
from tests.sim.truth import Truth


def check(history: History) -> list[str]:
    truth = Truth(history)
    found: list[str] = []
    for operation in history.operations():
        found += _from_nowhere(operation, truth)
        if isinstance(operation.request, Range) and isinstance(operation.result, RangeResult):
            found += _of_one_revision(operation, operation.request, operation.result, truth)
    return found


def _named(operation: Operation) -> str:
    return f"operation {operation.number} of {operation.client} ({operation.path.value} at {operation.node})"


def _from_nowhere(operation: Operation, truth: Truth) -> Iterator[str]:
    ended = operation.ended.order if operation.ended else 0
    keys_only = isinstance(operation.request, Range) and operation.request.keys_only
    for kv in rows_of(operation.result):
        if not kv.mod_revision:
            continue
        committed = truth.at(kv.key, kv.mod_revision)
        if committed is not None and keys_only:
            committed = committed._replace(value=b"")
        if committed != kv or truth.orders[kv.mod_revision] >= ended:
            yield f"{_named(operation)} was shown {kv}, committed was {committed}"


def _of_one_revision(operation: Operation, request: Range, result: RangeResult, truth: Truth) -> Iterator[str]:
    revision = request.revision if request.revision > 0 else result.revision
    is_default = operation.path in FENCED and any(not kv.create_revision for kv in result.kvs)
    if not revision or is_default or _has_bounds(request):
        return
    if revision > truth.latest:
        yield f"{_named(operation)} is of revision {revision}, committed is {truth.latest}"
        return
    there = _in_order(truth.range(request, revision), request)
    shown = there[: request.limit] if request.limit > 0 else there
    if request.count_only:
        if result.count != len(there):
            yield f"{_named(operation)} counted {result.count} at revision {revision}, there were {len(there)}"
        return
    if result.count != len(there):
        yield f"{_named(operation)} got a count of {result.count} at revision {revision}, committed were {len(there)}"
    if [kv.key for kv in result.kvs] != [kv.key for kv in shown] or result.more != (len(there) > len(shown)):
        keys = [kv.key for kv in result.kvs]
        yield f"{_named(operation)} was shown {keys} at revision {revision}, there were {[kv.key for kv in there]}"
        return
    for kv, committed in zip(result.kvs, shown, strict=True):
        if kv.mod_revision != committed.mod_revision:
            yield f"{_named(operation)} was shown {kv} at revision {revision}, it was {committed}"


def _has_bounds(request: Range) -> bool:
    bounds = (request.min_mod_revision, request.max_mod_revision, request.min_create_revision)
    return bool(any(bounds) or request.max_create_revision)


SORTED_BY: dict[SortTarget, Callable[[KeyValue], Any]] = {
    SortTarget.KEY: lambda kv: kv.key,
    SortTarget.VERSION: lambda kv: kv.version,
    SortTarget.CREATE: lambda kv: kv.create_revision,
    SortTarget.MOD: lambda kv: kv.mod_revision,
    SortTarget.VALUE: lambda kv: kv.value,
}


def _in_order(kvs: list[KeyValue], request: Range) -> list[KeyValue]:
    """Ties stay in the order of their keys."""
    if request.sort_order is SortOrder.NONE:
        return kvs
    return sorted(kvs, key=SORTED_BY[request.sort_target], reverse=request.sort_order is SortOrder.DESCEND)
