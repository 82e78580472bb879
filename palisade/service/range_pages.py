"""Reads ranges page by page: a large range does not delay heartbeats and is still of one revision."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

from palisade.metastore.range_read import has_filter, is_whole, needs_all, passes, sort
from palisade.metastore.requests import Range, SortOrder, SortTarget
from palisade.metastore.results import KeyValue, RangeResult
from palisade.metastore.state_machine import MetaStore

PAGE_KEYS_FIRST = 64
PAGE_KEYS_MAX = 1_024
PAGE_BYTES = 512 * 1024
"""About how many bytes are read in one turn of the event loop."""
ARRANGED_BYTES = 1024 * 1024
"""About how many bytes are filtered and sorted at a time."""
COUNTED_KEYS = 10_000
"""How many keys are counted in one turn: about six milliseconds."""
PAGE_BLOCKS = 500
"""Events examined per turn, for a read in the past: about six milliseconds."""


async def read_in_turns(store: MetaStore, request: Range, bytes_max: int | None) -> RangeResult:
    """The result of `MetaStore.range` for any range. `bytes_max`: an answer in the order of the keys ends there,
    with `more`, whatever its limit. Raises Compacted, FutureRevision."""
    if request.count_only:
        if is_whole(request):
            return store.range(request)
        latest = store.revision
        at = request.revision if request.revision > 0 else latest
        count = await count_keys(store, request.key, request.range_end, at)
        return RangeResult(latest, (), False, count)
    if is_pageable(request):
        return await read_pages(store, request, bytes_max)
    if needs_all(request):
        return await read_arranged(store, request)
    return await read_first_keys(store, request)


async def read_pages(store: MetaStore, request: Range, bytes_max: int | None) -> RangeResult:
    """A whole range at one revision, page by page, with turns of the event loop in between."""
    wanted = request.limit if request.limit > 0 else sys.maxsize
    keys = PAGE_KEYS_FIRST
    blocks = store.blocks_read
    known = request.exact_count and is_whole(request)
    page = first = store.range(replace(request, limit=min(keys, wanted), exact_count=known))
    at = request.revision if request.revision > 0 else first.revision
    kvs, size = list(first.kvs), size_of(first.kvs)
    total = size
    while page.more and len(kvs) < wanted and (bytes_max is None or total < bytes_max):
        await asyncio.sleep(0)
        keys = next_page_keys(keys, size, store.blocks_read - blocks)
        blocks = store.blocks_read
        rest = replace(
            request,
            key=kvs[-1].key + b"\0",
            limit=min(keys, wanted - len(kvs)),
            revision=at,
            exact_count=False,
        )
        page = store.range(rest)
        size = size_of(page.kvs)
        total += size
        kvs += page.kvs
    count = first.count if known else len(kvs) + page.more
    if request.exact_count and page.more and not known:
        count = len(kvs) + await count_keys(store, kvs[-1].key + b"\0", request.range_end, at)
    return RangeResult(first.revision, tuple(kvs), page.more, count)


async def read_first_keys(store: MetaStore, request: Range) -> RangeResult:
    """A range with a sort target, no order, and a limit: of the first keys only, which are then sorted."""
    values = not request.keys_only or request.sort_target is SortTarget.VALUE
    plain = replace(request, limit=request.limit + 1, sort_target=SortTarget.KEY, keys_only=not values)
    found = await read_pages(store, plain, None)
    chosen = sort(list(found.kvs), request)[: request.limit]
    if request.keys_only:
        chosen = [kv._replace(value=b"") for kv in chosen]
    count = found.count if request.exact_count else len(found.kvs)
    return RangeResult(found.revision, tuple(chosen), len(found.kvs) > request.limit, count)


async def read_arranged(store: MetaStore, request: Range) -> RangeResult:
    """A range for which `needs_all` holds, at one revision, read in pages as well. A limit bounds the number of rows
    in memory; without one, all rows are sorted in one turn."""
    values = not request.keys_only or request.sort_target is SortTarget.VALUE
    plain = Range(request.key, request.range_end, revision=request.revision, keys_only=not values, exact_count=False)
    page = first = await read_pages(store, plain, ARRANGED_BYTES)
    kept, passed, count = list[KeyValue](), 0, 0
    while True:
        passing = [kv for kv in page.kvs if passes(kv, request)]
        kept += passing
        passed += len(passing)
        count += len(page.kvs)
        if request.limit > 0 and len(kept) > 2 * request.limit + PAGE_KEYS_MAX:
            kept = sort(kept, request)[: request.limit]
        if not page.more:
            break
        await asyncio.sleep(0)
        rest = replace(plain, key=page.kvs[-1].key + b"\0", revision=request.revision or first.revision)
        page = await read_pages(store, rest, ARRANGED_BYTES)
    more = 0 < request.limit < passed
    chosen = sort(kept, request)[: request.limit if more else None]
    if request.keys_only:
        chosen = [kv._replace(value=b"") for kv in chosen]
    return RangeResult(first.revision, tuple(chosen), more, count)


async def count_keys(store: MetaStore, start: bytes, end: bytes, revision: int) -> int:
    """The number of keys of [start, end) at the revision, in turns: each key may have any number of later events."""
    total, following = store.count_part(start, end, revision, COUNTED_KEYS, PAGE_BLOCKS)
    while following is not None:
        await asyncio.sleep(0)
        count, following = store.count_part(following, end, revision, COUNTED_KEYS, PAGE_BLOCKS)
        total += count
    return total


def size_of(kvs: Sequence[KeyValue]) -> int:
    return sum(len(kv.key) + len(kv.value) for kv in kvs)


def next_page_keys(keys: int, size_bytes: int, blocks: int = 0) -> int:
    """How many keys the next page has, after one of `keys` keys, `size_bytes` and `blocks` of events."""
    part = max(size_bytes / PAGE_BYTES, blocks / PAGE_BLOCKS)
    if part > 1:
        return max(1, keys // 2)
    return min(PAGE_KEYS_MAX, keys * 2) if part < 0.5 else keys


def is_pageable(request: Range) -> bool:
    """Whether pages in the order of the keys make up the result."""
    ordered = request.sort_target is SortTarget.KEY and request.sort_order is not SortOrder.DESCEND
    return ordered and not has_filter(request) and not request.count_only
