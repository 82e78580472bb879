"""Keys that are longer than a backend takes, kept in almost their order. Pure.

A key of up to `PREFIX_BYTES` is stored as it is; of a longer one, its first `PREFIX_BYTES` and a hash of the whole. The
length tells the two apart, the entry has the whole key. Long keys with one prefix lie next to each other with nothing
else among them: whoever scans collects such a group and sorts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b

from vault.change import key_of

PREFIX_BYTES = 480
HASH_BYTES = 16
LONG_BYTES = PREFIX_BYTES + HASH_BYTES
BEHIND_GROUP = b"\xff" * (HASH_BYTES + 1)


def stored_key(key: bytes) -> bytes:
    return key if len(key) <= PREFIX_BYTES else key[:PREFIX_BYTES] + blake2b(key, digest_size=HASH_BYTES).digest()


def stored_start(start: bytes) -> bytes:
    """No key at or after `start` is stored before this."""
    return start[:PREFIX_BYTES]


def stored_end(end: bytes | None) -> bytes | None:
    """No key before `end` is stored at or after this."""
    if end is None or len(end) <= PREFIX_BYTES:
        return end
    return end[:PREFIX_BYTES] + BEHIND_GROUP


def in_order(rows: Iterator[tuple[bytes, bytes]], start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
    """(key, entry) in the order of the keys with start <= key < end, from a scan between the stored bounds."""
    group: list[tuple[bytes, bytes]] = []
    prefix = b""
    for stored, entry in rows:
        long = len(stored) == LONG_BYTES
        if group and not (long and stored.startswith(prefix)):
            yield from sorted(group)
            group.clear()
        if long:
            prefix = stored[:PREFIX_BYTES]
            key = key_of(entry)
            if start <= key and (end is None or key < end):
                group.append((key, entry))
        elif stored >= start:
            yield stored, entry
    yield from sorted(group)
