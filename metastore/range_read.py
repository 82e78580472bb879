"""A range read with all options of etcd: filters, sort, limit, count (M1).

The order of the steps is etcd's and visible in the answers: `count` is of all existing keys in the range, before the
filters; filters apply before the sort, the sort before the limit. A limit without order or filter stops the collection
early, even with a sort target: then only the collected keys are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, TypeVar

from palisade.metastore.history import is_tombstone
from palisade.metastore.mvcc import Found, StoreView, count_live, end_of, find, find_range, get, read_revision
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import FROM_KEY, Range, SortOrder, SortTarget
from palisade.metastore.results import KeyValue, RangeResult

Row = TypeVar("Row", Found, KeyValue)
SortKey = Callable[[Any], Any]


def read_range(view: StoreView, request: Range, header_revision: int) -> RangeResult:
    """`header_revision`: the store's revision in the answer. Raises Compacted, FutureRevision."""
    revision = read_revision(view.state, request.revision)
    if not request.range_end and is_plain(request):
        return read_one(view, request, revision, header_revision)
    found, count = collect(view, request, revision)
    if request.count_only:
        return RangeResult(header_revision, (), False, count)
    found = sort([item for item in found if passes(item, request)], request)
    more = 0 < request.limit < len(found)
    chosen = found[: request.limit] if more else found
    return RangeResult(header_revision, tuple(answer(item, request) for item in chosen), more, count)


def is_plain(request: Range) -> bool:
    return not (request.count_only or has_filter(request))


def has_filter(request: Range) -> bool:
    return bool(
        request.min_mod_revision
        or request.max_mod_revision
        or request.min_create_revision
        or request.max_create_revision
    )


def read_one(view: StoreView, request: Range, revision: int | None, header_revision: int) -> RangeResult:
    if revision is None and not request.keys_only:
        kv = get(view.tables, request.key)
    else:
        found = find(view, request.key, revision)
        kv = answer(found, request) if found else None
    return RangeResult(header_revision, (kv,) if kv else (), False, 1 if kv else 0)


def is_whole(request: Range) -> bool:
    """Whether the count is that of all keys of the latest state, which is known."""
    return request.revision <= 0 and request.key == FROM_KEY == request.range_end


def needs_all(request: Range) -> bool:
    """Whether every key of the range has to be read to know the first one of the answer."""
    return request.limit <= 0 or request.sort_order is not SortOrder.NONE or has_filter(request)


def collect(view: StoreView, request: Range, revision: int | None) -> tuple[list[Found], int]:
    """The input of filters, sort and limit, and the count of all existing keys."""
    if request.count_only:
        return [], count_range(view, request, revision)
    wanted = None if needs_all(request) else request.limit + 1
    found = list(islice(find_range(view, request.key, request.range_end, revision), wanted))
    complete = len(found) != wanted or not request.exact_count
    return found, len(found) if complete else count_range(view, request, revision)


def count_range(view: StoreView, request: Range, revision: int | None) -> int:
    """Without reading events for the latest state."""
    if revision is not None or not request.range_end:
        return sum(1 for _ in find_range(view, request.key, request.range_end, revision))
    if is_whole(request):
        return view.state.keys
    return count_live(view.tables, request.key, request.range_end)


def count_part(
    view: StoreView, key: bytes, range_end: bytes, revision: int, rows: int, blocks: int
) -> tuple[int, bytes | None]:
    """The number of keys that exist at `revision` among the first `rows` keys of [key, range_end), fewer if `blocks` of
    events were read before; and where to continue, None at the end. Raises Compacted, FutureRevision."""
    at = read_revision(view.state, revision)
    part = islice(view.tables.scan(Table.KEY, key, end_of(range_end)), rows)
    if at == view.state.revision:
        latest = list(part)
        count = len(latest) - sum(is_tombstone(row) for _, row in latest)
        return count, latest[-1][0] + b"\0" if len(latest) == rows else None
    count, end = 0, view.history.blocks_read + blocks
    for examined, (name, row) in enumerate(part, 1):
        found = row if at is None else view.history.version_at(row, at)
        count += bool(found) and not is_tombstone(found)
        if examined == rows or view.history.blocks_read >= end:
            return count, name + b"\0"
    return count, None


def passes(found: Found | KeyValue, request: Range) -> bool:
    return not (
        (request.max_mod_revision and found.mod_revision > request.max_mod_revision)
        or (request.min_mod_revision and found.mod_revision < request.min_mod_revision)
        or (request.max_create_revision and found.create_revision > request.max_create_revision)
        or (request.min_create_revision and found.create_revision < request.min_create_revision)
    )


SORT_KEYS: dict[SortTarget, SortKey] = {
    SortTarget.KEY: lambda found: found.key,
    SortTarget.VERSION: lambda found: found.version,
    SortTarget.CREATE: lambda found: found.create_revision,
    SortTarget.MOD: lambda found: found.mod_revision,
}


def sort(found: list[Row], request: Range) -> list[Row]:
    """Ties stay in key order. A target other than the key sorts ascending if no order is given."""
    if request.sort_order is SortOrder.NONE and request.sort_target is SortTarget.KEY:
        return found
    key = SORT_KEYS.get(request.sort_target, lambda item: item.value)
    return sorted(found, key=key, reverse=request.sort_order is SortOrder.DESCEND)


def answer(found: Found, request: Range) -> KeyValue:
    if request.keys_only:
        return KeyValue(found.key, b"", found.create_revision, found.mod_revision, found.version, found.lease)
    return found.as_key_value()
