"""Locks: a record per object, so that no two procedures work on the same one. Pure.

A lock is a place in a tree, each name with a slash behind it (`paths/plant/line1/`). Who has one has all below it: it
is taken only while there is none at the place, below it, or above it, which the transaction that takes it compares.
So two procedures that touch the same object have a lock in common, and the later one is refused and told whom it has to
wait for. Locks have no lease: a procedure ends, whoever leads, and the transaction that ends it gives its locks back.
"""

from __future__ import annotations

from collections.abc import Iterable

from palisade.catalog import keys
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, prefix_end


def least(locks: Iterable[str]) -> tuple[str, ...]:
    """Without those that another one covers."""
    found: list[str] = []
    for lock in sorted(set(locks)):
        if not found or not lock.startswith(found[-1]):
            found.append(lock)
    return tuple(found)


def lock_key(lock: str) -> bytes:
    return keys.LOCKS + lock.encode()


def keys_above(lock: str) -> list[bytes]:
    names = lock.rstrip("/").split("/")
    return [lock_key("/".join(names[:count]) + "/") for count in range(1, len(names))]


def are_free(locks: Iterable[str]) -> tuple[Compare, ...]:
    found = []
    for lock in locks:
        key = lock_key(lock)
        found.append(absent(key, prefix_end(key)))
        found += [absent(above) for above in keys_above(lock)]
    return tuple(dict.fromkeys(found))


def absent(key: bytes, range_end: bytes = b"") -> Compare:
    """Holds while there is no such key, and none in the range."""
    return Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0, range_end)


def take(locks: Iterable[str], procedure: str) -> tuple[Put, ...]:
    return tuple(Put(lock_key(lock), procedure.encode()) for lock in locks)


def give_back(locks: Iterable[str]) -> tuple[DeleteRange, ...]:
    return tuple(DeleteRange(lock_key(lock)) for lock in locks)
