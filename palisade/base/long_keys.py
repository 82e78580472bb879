"""Storage of keys beyond LMDB's limit of 511 bytes, almost in key order.

A key of up to `PREFIX_BYTES` is stored unchanged. A longer key is stored as its first `PREFIX_BYTES` and a hash of the
whole key, `LONG_BYTES` in total. Its value contains the whole key: before the value (`stored_value`), or wherever the
caller's format has it. Therefore:

- the length distinguishes the two forms;
- all long keys with the same prefix, a *group*, are adjacent, with no other keys among them: a shorter key that sorts
  between two of them would have to begin with their prefix and be longer than it;
- groups and short keys are in key order; keys within a group are in the order of their hashes, so a scan collects a
  group and sorts it.

Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from struct import Struct

PREFIX_BYTES = 480
HASH_BYTES = 16
LONG_BYTES = PREFIX_BYTES + HASH_BYTES
_LENGTH = Struct(">I")
_AFTER_GROUP = b"\xff" * (HASH_BYTES + 1)


def stored_key(key: bytes) -> bytes:
    if len(key) <= PREFIX_BYTES:
        return key
    return key[:PREFIX_BYTES] + blake2b(key, digest_size=HASH_BYTES).digest()


def stored_value(key: bytes, value: bytes) -> bytes:
    """The value as stored under `stored_key(key)`."""
    if len(key) <= PREFIX_BYTES:
        return value
    return _LENGTH.pack(len(key)) + key + value


def is_long(stored: bytes) -> bool:
    return len(stored) == LONG_BYTES


def split(value: bytes) -> tuple[bytes, bytes]:
    """(key, value) of a value stored under a long key."""
    stop = _LENGTH.size + int(_LENGTH.unpack_from(value)[0])
    return value[_LENGTH.size : stop], value[stop:]


def stored_start(start: bytes) -> bytes:
    """A lower bound: no key at or after `start` is stored before it. Some keys before `start` may follow it, in one
    group.
    """
    return start[:PREFIX_BYTES]


def stored_end(end: bytes | None) -> bytes | None:
    """An upper bound: every key before `end` is stored before it. Some later keys may be as well, in one group."""
    if end is None or len(end) <= PREFIX_BYTES:
        return end
    return end[:PREFIX_BYTES] + _AFTER_GROUP


def in_order(
    items: Iterator[tuple[bytes, bytes]],
    start: bytes,
    end: bytes | None,
    reverse: bool = False,
    opened: Callable[[bytes], tuple[bytes, bytes]] = split,
) -> Iterator[tuple[bytes, bytes]]:
    """The items of a scan between stored bounds, with their original keys, in key order, between the original bounds.

    `opened` returns (key, value) of a value stored under a long key.
    """
    group: list[tuple[bytes, bytes]] = []
    prefix = b""
    for stored, value in items:
        if group and not (len(stored) == LONG_BYTES and stored.startswith(prefix)):
            yield from sorted(group, reverse=reverse)
            group.clear()
        if len(stored) == LONG_BYTES:
            key, value = opened(value)
            prefix = stored[:PREFIX_BYTES]
            if start <= key and (end is None or key < end):
                group.append((key, value))
        elif stored >= start:
            yield stored, value
    yield from sorted(group, reverse=reverse)
