"""Deletes a range of any number of keys, in portions that the cluster executes quickly.

A node executes one request in one step, and answers nothing else meanwhile, not even the leader's heartbeats. The
deletion of 200,000 keys in one request takes seconds, and the cluster elects another leader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Unpack

from palisade.client.operations import interval
from palisade.client.range_options import RangeOptions
from palisade.metastore.results import DeleteRangeResult, KeyValue, RangeResult
from palisade.wire.auth_errors import PermissionDenied

PORTION = 10_000
"""Keys that one request deletes. With this number, 200,000 keys were deleted without an election."""


class DeletableStore(Protocol):
    """The part of `client.Client` that deleting needs."""

    async def range(
        self, key: bytes, range_end: bytes = b"", *, timeout_s: float | None = None, **options: Unpack[RangeOptions]
    ) -> RangeResult: ...
    async def delete(
        self, key: bytes, range_end: bytes = b"", *, prev_kv: bool = False, timeout_s: float | None = None
    ) -> DeleteRangeResult: ...


async def delete_in_portions(
    store: DeletableStore,
    key: bytes,
    range_end: bytes = b"",
    *,
    prefix: bool = False,
    prev_kv: bool = False,
    timeout_s: float | None = None,
    progress: Callable[[int, int], None] = lambda deleted, total: None,
) -> DeleteRangeResult:
    """Delete [key, range_end), or all keys with the prefix `key`: up to `PORTION` keys in one revision, more in
    portions, in the order of the keys, each in a revision of its own.

    The result has the last revision and the keys of all portions. `timeout_s`: of each request. `progress` is called
    after each portion except the last one, with the number of deleted keys and the number of all keys. If the user
    lacks the right to read, all keys are deleted in one request.

    Raises the errors of the store; earlier portions stay deleted."""
    start, end = interval(key, range_end, prefix)
    if not end:
        return await store.delete(start, prev_kv=prev_kv, timeout_s=timeout_s)
    try:
        found = await store.range(start, end, limit=PORTION, keys_only=True, timeout_s=timeout_s)
    except PermissionDenied:
        return await store.delete(start, end, prev_kv=prev_kv, timeout_s=timeout_s)
    total, deleted, previous = found.count, 0, list[KeyValue]()
    while found.more and found.kvs:
        after = found.kvs[-1].key + b"\0"
        portion = await store.delete(start, after, prev_kv=prev_kv, timeout_s=timeout_s)
        deleted += portion.deleted
        previous += portion.prev_kvs
        progress(deleted, max(total, deleted))
        start = after
        found = await store.range(start, end, limit=PORTION, keys_only=True, exact_count=False, timeout_s=timeout_s)
    last = await store.delete(start, end, prev_kv=prev_kv, timeout_s=timeout_s)
    return DeleteRangeResult(last.revision, deleted + last.deleted, (*previous, *last.prev_kvs))
