"""Locks: one record per object, so that no two procedures change the same object at once. Pure.

A lock is a place in a tree; every name ends with a slash (`paths/plant/line1/`). It includes everything below. The
transaction that acquires it compares that there is no lock at the place, below it or above it. Thus two procedures that
touch the same object need a common lock, and the later one is rejected with the name of the other. Locks have no lease:
every procedure ends under any leader, and the transaction that ends it releases its locks.
"""

from __future__ import annotations

from collections.abc import Iterable

from palisade.catalog import keys
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, prefix_end


def least(locks: Iterable[str]) -> tuple[str, ...]:
    """Without locks that another one includes."""
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
    """True while the key, or every key of the range, is absent."""
    return Compare(key, CompareTarget.VERSION, CompareResult.EQUAL, 0, range_end)


def take(locks: Iterable[str], procedure: str) -> tuple[Put, ...]:
    return tuple(Put(lock_key(lock), procedure.encode()) for lock in locks)


def give_back(locks: Iterable[str]) -> tuple[DeleteRange, ...]:
    return tuple(DeleteRange(lock_key(lock)) for lock in locks)
