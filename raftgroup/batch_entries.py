"""Batches of commands as entries of the log: one byte for the kind of the entry, then [stamp, [command, ...]].

The stamp is the state machine's own, which judges it; a command is bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from raftgroup.engine import BATCH, MEMBERSHIP, NO_OP


def batch_entry(stamp: Any, commands: Sequence[bytes]) -> bytes:
    packed: bytes = msgpack.packb([stamp, commands])
    return BATCH + packed


def batch_in(entry: bytes) -> tuple[Any, list[bytes]] | None:
    """None for an entry of a kind that brings no commands. Raises ValueError for one that can't be understood."""
    kind = entry[:1]
    if kind == BATCH:
        return _batch(memoryview(entry)[1:])
    if kind in (NO_OP, MEMBERSHIP):
        return None
    raise ValueError(f"no kind of entry begins with {kind!r}")


def _batch(packed: memoryview) -> tuple[Any, list[bytes]]:
    try:
        batch = msgpack.unpackb(packed, strict_map_key=False)
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)[:200] or type(error).__name__) from error
    if type(batch) is not list or len(batch) != 2:
        raise ValueError("it is not a stamp and a list of commands")
    stamp, commands = batch
    if type(commands) is not list or not _are_commands(commands):
        raise ValueError("its commands are no list of bytes")
    return stamp, commands


def check_commands(commands: Sequence[Any]) -> None:
    """Raises TypeError. An entry with something else in it would be refused by each follower, for ever."""
    if not _are_commands(commands):
        kinds = ", ".join(sorted({type(each).__name__ for each in commands}))
        raise TypeError(f"a command is bytes, and one of these is not: {kinds[:200]}")


def _are_commands(commands: Sequence[Any]) -> bool:
    return set(map(type, commands)) <= {bytes}
