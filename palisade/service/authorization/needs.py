"""Which rights a request needs. Pure.

Least privilege: a read needs READ on every key that it names, and a write WRITE, even if no such key exists; `prev_kv`
and compares also need READ. A transaction needs the rights of all its compares and of both its branches, so the
decision does not depend on stored data. Requests about the cluster rather than keys need ADMIN on every key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from palisade.base.key_text import WHOLE_MAX, key_text
from palisade.catalog.permissions import Privilege
from palisade.metastore.requests import (
    FROM_KEY,
    CopyChunk,
    DeleteRange,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    Txn,
    WatchRequest,
    prefix_end,
)


@dataclass(frozen=True, slots=True)
class Need:
    """A privilege on a key, or on every key of [key, range_end)."""

    privilege: Privilege
    key: bytes
    range_end: bytes = b""

    def __str__(self) -> str:
        name = self.privilege.value
        if self == EVERYTHING:
            return f"{name} on every key"
        if not self.range_end:
            return f"{name} on {key_text(self.key, WHOLE_MAX)}"
        if self.range_end == prefix_end(self.key):
            return f"{name} on all keys that begin with {key_text(self.key, WHOLE_MAX)}"
        if self.range_end == FROM_KEY:
            return f"{name} on all keys from {key_text(self.key, WHOLE_MAX)} on"
        return f"{name} on all keys from {key_text(self.key, WHOLE_MAX)} up to {key_text(self.range_end, WHOLE_MAX)}"


EVERYTHING = Need(Privilege.ADMIN, b"\0", FROM_KEY)
"""Needed by operations on the cluster."""

LeaseKeys = Callable[[int], Iterable[bytes]]
"""The keys of a lease, as this node knows them."""
Needs = tuple[Need, ...]


def reading(key: bytes, range_end: bytes = b"") -> Need:
    return Need(Privilege.READ, key, range_end)


def writing(key: bytes, range_end: bytes = b"") -> Need:
    return Need(Privilege.WRITE, key, range_end)


def needs_of(request: Any, lease_keys: LeaseKeys) -> Needs:
    """For a request of `metastore.requests`. Unlisted requests need ADMIN."""
    return tuple(_needs(request, lease_keys))


def _needs(request: Any, lease_keys: LeaseKeys) -> Iterator[Need]:
    if isinstance(request, Range | WatchRequest):
        yield reading(request.key, request.range_end)
    elif isinstance(request, Put | DeleteRange):
        range_end = request.range_end if isinstance(request, DeleteRange) else b""
        yield writing(request.key, range_end)
        if request.prev_kv:
            yield reading(request.key, range_end)
    elif isinstance(request, Txn):
        for compare in request.compare:
            yield reading(compare.key, compare.range_end)
        for each in (*request.success, *request.failure):
            yield from _needs(each, lease_keys)
    elif isinstance(request, CopyChunk):
        yield reading(request.manifest)
        yield writing(request.chunk)
        yield writing(request.key, request.range_end)
    elif isinstance(request, LeaseRevoke | LeaseKeepAlive):
        for key in lease_keys(request.id):
            yield writing(key)
    elif not isinstance(request, LeaseGrant):
        yield EVERYTHING
