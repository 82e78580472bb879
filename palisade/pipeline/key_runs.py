"""Finds keys that occur twice in a batch, and keys of the store that a batch does not have, in bounded memory. Pure.

A task hashes the keys of its rows and stages the hashes in sorted *runs*, each divided into pages. The driver merges
all runs and holds one page of each. Hashes have 16 bytes, so equal hashes mean equal keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b

import msgpack

HASH_BYTES = 16
RUN_ENTRIES = 50_000
PAGE_ENTRIES = 2_000
PAGES_PER_RUN = RUN_ENTRIES // PAGE_ENTRIES


def hash_of(key: bytes) -> bytes:
    return blake2b(key, digest_size=HASH_BYTES).digest()


class KeyRuns:
    """Collects entries, which begin with a hash, and passes each page of a run to `put(number, page)`.

    Pages of all runs are numbered consecutively; every run but the last has `PAGES_PER_RUN` of them.
    """

    def __init__(self, put: Callable[[int, bytes], None]) -> None:
        self._put, self._entries = put, list[bytes]()
        self.pages = 0

    def add(self, entry: bytes) -> None:
        self._entries.append(entry)
        if len(self._entries) == RUN_ENTRIES:
            self.flush()

    def flush(self) -> None:
        """Ends the run."""
        self._entries.sort()
        for first in range(0, len(self._entries), PAGE_ENTRIES):
            self._put(self.pages, msgpack.packb(self._entries[first : first + PAGE_ENTRIES]))
            self.pages += 1
        self._entries.clear()


def runs(pages: int, get: Callable[[int], bytes]) -> Iterator[Iterator[bytes]]:
    """The runs of one `KeyRuns`, each read page by page."""
    for first in range(0, pages, PAGES_PER_RUN):
        numbers = range(first, min(first + PAGES_PER_RUN, pages))
        yield (entry for number in numbers for entry in msgpack.unpackb(get(number)))


def merged(found: Iterable[Iterator[bytes]]) -> Iterator[bytes]:
    return heapq.merge(*found)


def repeated(entries: Iterable[bytes]) -> Iterator[bytes]:
    """The entries that occur more than once, each of them once. `entries`: sorted."""
    before, reported = b"", b""
    for entry in entries:
        if entry == before != reported:
            reported = entry
            yield entry
        before = entry


def without(entries: Iterable[bytes], hashes: Iterable[bytes]) -> Iterator[bytes]:
    """The part after the hash of each entry whose hash is not among `hashes`. Both are sorted."""
    known = iter(hashes)
    at = next(known, None)
    for entry in entries:
        own = entry[:HASH_BYTES]
        while at is not None and at < own:
            at = next(known, None)
        if at != own:
            yield entry[HASH_BYTES:]
