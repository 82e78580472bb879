"""Batches of commands as entries of the log: one byte for the kind of entry, then [stamp, [command, ...]].

Only the state machine interprets the stamp. A command is bytes. The kinds are those of PySyncObj.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.ports import Entry

BATCH = b"\x00"
NO_OP = b"\x01"
MEMBERSHIP = b"\x02"

DECODED_BYTES_MAX = 8 << 20

Batch = tuple[Any, Sequence[bytes]]


def batch_entry(stamp: Any, commands: Sequence[bytes]) -> bytes:
    packed: bytes = msgpack.packb([stamp, commands])
    return BATCH + packed


def batch_in(entry: bytes) -> Batch | None:
    """None for an entry of a kind without commands. Raises ValueError for an invalid one."""
    kind = entry[:1]
    if kind in (NO_OP, MEMBERSHIP):
        return None
    if kind != BATCH:
        raise ValueError(f"no kind of entry begins with {kind!r}")
    try:
        batch = msgpack.unpackb(memoryview(entry)[1:], strict_map_key=False)
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)[:200] or type(error).__name__) from error
    if type(batch) is not list or len(batch) != 2:
        raise ValueError("it is not a stamp and a list of commands")
    stamp, commands = batch
    if type(commands) is not list or not set(map(type, commands)) <= {bytes}:
        raise ValueError("its commands are no list of bytes")
    return stamp, commands


def check_commands(commands: Sequence[Any]) -> None:
    """Raises TypeError. Followers would refuse an entry with anything else, for ever."""
    if not set(map(type, commands)) <= {bytes}:
        kinds = ", ".join(sorted({type(each).__name__ for each in commands}))
        raise TypeError(f"a command is bytes, and one of these is not: {kinds[:200]}")


class DecodedBatches:
    """The decoded batches of entries that are in the log and not applied yet: a leader's own, and those that a follower
    decoded when it checked an append. `bytes_max` bounds the size of their entries; a batch that is not here, also
    after a restart, is decoded when it is applied.
    """

    __slots__ = ("_bytes", "_bytes_max", "_kept")

    def __init__(self, bytes_max: int = DECODED_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._kept: dict[int, tuple[Entry, Batch]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, entry: Entry, batch: Batch) -> None:
        """If there is no room for all, the oldest ones are kept: they are applied first."""
        if entry.index not in self._kept and self._bytes + len(entry.command) <= self._bytes_max:
            self._kept[entry.index] = (entry, batch)
            self._bytes += len(entry.command)

    def keep_all(self, entries: Sequence[Entry], batches: Sequence[Batch | None]) -> None:
        """Those of `entries` that have a batch."""
        for entry, batch in zip(entries, batches, strict=True):
            if batch is not None:
                self.keep(entry, batch)

    def take(self, entry: Entry) -> Batch | None:
        """The batch of this entry, which is about to be applied; decoded now if it was not kept. None for an entry
        without commands. Raises NodeFailed for one that can't be read."""
        kept = self._kept.pop(entry.index, None)
        if kept is not None:
            self._bytes -= len(kept[0].command)
            if kept[0].term == entry.term:
                return kept[1]
        try:
            return batch_in(entry.command)
        except ValueError as error:
            raise NodeFailed(
                f"entry {entry.index} of term {entry.term} is committed and not decodable: {error}. The leader of that "
                "term was faulty, or of another release: run the same release of palisade on all nodes; if that does "
                "not help, restore a backup"
            ) from error

    def drop_from(self, index: int) -> None:
        """The log was truncated."""
        for at in [at for at in self._kept if at >= index]:
            entry, _ = self._kept.pop(at)
            self._bytes -= len(entry.command)

    def clear(self) -> None:
        """A snapshot has become the state."""
        self._kept.clear()
        self._bytes = 0
