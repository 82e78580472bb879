"""The transfer of a snapshot from the leader to one follower, piece by piece, while everything else continues.

Pure: `SnapshotSender` and `SnapshotReceiver` receive events with their time, and return effects for their owner to
execute in order. They read no clock, no disk and no network.

    message                                              from      meaning
    OFFER   [0, id, index, term, size, leader term,      leader    offers a snapshot; repeated, it asks for the
             membership]                                           follower's progress
    ACCEPT  [1, id, next chunk, installing]              follower  begin (or continue) with this piece
    REFUSE  [2, id, refusal, text]                       follower  see `TransferRefusal`
    CHUNK   [3, id, number, crc32, data, last]           leader    one piece; at most `window` unacknowledged
    ACK     [4, id, next chunk]                          follower  all pieces below are here; the same one again
                                                                   requests that piece again
    DONE    [5, id, ok, text]                            follower  the snapshot is the state now, or why not

Why it is safe:

- A piece is written only if it is the next one and its checksum matches. The install begins only after the last piece,
  once, and `SnapshotWriter.finish` verifies the whole before anything becomes visible. A lost, repeated, reordered or
  altered message costs time and nothing else.
- An offer is refused unless it is ahead of the follower's commit index, and the transfer is abandoned if the follower
  gets there by the log meanwhile: an install never takes anything back.
- A gap is closed by one install: a finished transfer is remembered and answered with DONE again; after a restart
  the commit index has the same effect.
- Few pieces are in flight, and one is read at a time, so a heartbeat never waits for more than `window` pieces.
  Everything is bounded in time: no answer, no progress, absence, total duration. A follower whose transfer is abandoned
  discards what it has received.

A malformed message is treated as lost.
"""

from __future__ import annotations

import enum
import zlib
from dataclasses import dataclass
from typing import Any

from palisade.base.snapshots import SnapshotMeta


class SnapshotMessage(enum.IntEnum):
    OFFER = 0
    ACCEPT = 1
    REFUSE = 2
    CHUNK = 3
    ACK = 4
    DONE = 5


class TransferRefusal(enum.IntEnum):
    NOT_AHEAD = 0
    """The follower has committed as much itself: the snapshot is not needed."""
    OLD_TERM = 1
    """The follower knows a later leader."""
    BUSY = 2
    """Another snapshot is being installed, or a newer one received: ask again later."""
    UNKNOWN = 3
    """A piece of a transfer unknown to the follower, perhaps after a restart: offer it again."""


@dataclass(frozen=True, slots=True)
class TransferTiming:
    """`window`: pieces in flight. `resend_s`: the initial silence after which the sender asks for the follower's
    progress; it grows until there is progress. The others are time limits."""

    window: int = 4
    resend_s: float = 1.0
    silence_s: float = 30.0
    absence_s: float = 60.0
    stall_s: float = 120.0
    install_s: float = 900.0
    life_s: float = 7200.0
    receiver_idle_s: float = 600.0
    failure_memory_s: float = 10.0

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be at least one piece, it is {self.window}")
        if not 0 < self.resend_s < self.silence_s:
            raise ValueError(f"resend_s ({self.resend_s}) must be less than silence_s ({self.silence_s})")


# Effects, executed by the owner in order.


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Best effort. `member` is empty if it is implied: a sender has one follower."""

    member: str
    body: list[Any]


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Read this piece, now or later, and call `SnapshotSender.read`, or `SnapshotSender.unreadable` if it is gone.

    Usually the next one; an earlier one again after a broken connection, and a later one if the follower has kept
    pieces of an earlier attempt.
    """

    number: int


@dataclass(frozen=True, slots=True)
class CloseReader:
    """The transfer is over; `SnapshotSender.outcome` has the result."""


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """`StateMachine.receive_snapshot`, then `SnapshotReceiver.opened` with its `next_chunk`."""

    meta: SnapshotMeta


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """`SnapshotWriter.write`. If it raises SnapshotInvalid: drop later effects, call `SnapshotReceiver.invalid`."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Install:
    """Apply nothing from now on, await `SnapshotWriter.finish`, replace log and membership; then call
    `SnapshotReceiver.installed`, or `SnapshotReceiver.invalid` if it raised SnapshotInvalid."""

    meta: SnapshotMeta
    membership: Any


@dataclass(frozen=True, slots=True)
class AbortWriter:
    """`SnapshotWriter.abort`."""


SenderEffect = SendMessage | ReadChunk | CloseReader
ReceiverEffect = SendMessage | OpenWriter | WriteChunk | Install | AbortWriter


# The encoding of the messages.

_SHAPES: dict[int, tuple[Any, ...]] = {
    SnapshotMessage.OFFER: (int, int, int | None, int, object),
    SnapshotMessage.ACCEPT: (int, bool),
    SnapshotMessage.REFUSE: (int, str),
    SnapshotMessage.CHUNK: (int, int, bytes, bool),
    SnapshotMessage.ACK: (int,),
    SnapshotMessage.DONE: (bool, str),
}


def read_message(wire: Any) -> tuple[SnapshotMessage, str, list[Any]] | None:
    """The kind, the transfer's id, and the remaining fields; None for a malformed message."""
    if not isinstance(wire, list) or len(wire) < 2 or type(wire[0]) is not int or not isinstance(wire[1], str):
        return None
    shape = _SHAPES.get(wire[0])
    if shape is None or len(wire) != 2 + len(shape):
        return None
    for value, wanted in zip(wire[2:], shape, strict=True):
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted not in (bool, object)):
            return None
        if type(value) is int and value < 0:
            return None
    return SnapshotMessage(wire[0]), wire[1], wire[2:]


def offer(meta: SnapshotMeta, leader_term: int, membership: Any) -> list[Any]:
    return [int(SnapshotMessage.OFFER), meta.id, meta.index, meta.term, meta.size_bytes, leader_term, membership]


def accept(transfer: str, next_chunk: int, installing: bool) -> list[Any]:
    return [int(SnapshotMessage.ACCEPT), transfer, next_chunk, installing]


def refuse(transfer: str, refusal: TransferRefusal, text: str) -> list[Any]:
    return [int(SnapshotMessage.REFUSE), transfer, int(refusal), text]


def chunk(transfer: str, number: int, data: bytes, last: bool) -> list[Any]:
    return [int(SnapshotMessage.CHUNK), transfer, number, zlib.crc32(data), data, last]


def acknowledge(transfer: str, next_chunk: int) -> list[Any]:
    return [int(SnapshotMessage.ACK), transfer, next_chunk]


def done(transfer: str, ok: bool, text: str) -> list[Any]:
    return [int(SnapshotMessage.DONE), transfer, ok, text]


def is_intact(data: bytes, crc32: int) -> bool:
    return zlib.crc32(data) == crc32
