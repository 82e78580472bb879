"""How a snapshot gets from the leader to one follower, piece by piece, while everything else goes on.

Pure: `snapshot_sender.Sender` and `snapshot_receiver.Receiver` are told what happened and when, and answer with
effects for their owner to carry out, in order. They read no clock, no disk and no network.

    message                                              from      meaning
    OFFER   [0, id, index, term, size, leader term,      leader    "I have this for you"; said again, it asks how
             membership]                                           far the follower is
    ACCEPT  [1, id, next chunk, installing]              follower  "begin (go on) with this one"
    REFUSE  [2, id, refusal, text]                       follower  see `TransferRefusal`
    CHUNK   [3, id, number, crc32, data, last]           leader    one piece; at most `window` unacknowledged
    ACK     [4, id, next chunk]                          follower  "I have everything below"; the same one again asks
                                                                   for that piece again
    DONE    [5, id, ok, text]                            follower  it is the state of the machine now, or why not

Why it is safe:

- A piece is written only if it is the next one and its checksum holds; the install begins only after the last one,
  once, and `SnapshotWriter.finish` verifies the whole before anything becomes visible. Whatever is lost, repeated,
  reordered or changed on the way costs time and nothing else.
- An offer is refused unless it is ahead of what the follower has committed, and the transfer is given up when the
  follower gets there by the log meanwhile: an install never takes anything back.
- A gap is closed by one install: a finished transfer is remembered and answered with DONE again, and after a restart
  the commit index says the same.
- The pieces under way are a few, and one is read at a time, so a heartbeat never waits behind more than `window`
  pieces. Everything has an end by time: no answer, no progress, away for too long, or a life that is too long; a
  follower that is left in the middle throws away what it had.

A malformed message is treated as one that was lost.
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
    """The follower has committed as much by itself: the snapshot is not needed."""
    OLD_TERM = 1
    """The follower knows of a later leader."""
    BUSY = 2
    """Another snapshot is being installed, or a newer one received: ask again later."""
    UNKNOWN = 3
    """A piece of a transfer that the follower knows nothing of, perhaps after a restart: offer it again."""


@dataclass(frozen=True, slots=True)
class TransferTiming:
    """`window`: pieces under way. `resend_s`: silence after which the sender asks how far the follower is, at first;
    it becomes more patient until it hears of progress. The rest are the ends."""

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


# What the owner carries out, in order.


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Best effort. `member` is empty where it is clear: a sender has one follower."""

    member: str
    body: list[Any]


@dataclass(frozen=True, slots=True)
class ReadChunk:
    """Read this piece, now or later, and call `SnapshotSender.read`, or `SnapshotSender.unreadable` if it is gone.

    The next one as a rule; an earlier one again after a broken connection, and one further ahead where the follower
    has kept pieces of an earlier attempt.
    """

    number: int


@dataclass(frozen=True, slots=True)
class CloseReader:
    """The transfer is over; `SnapshotSender.outcome` says how."""


@dataclass(frozen=True, slots=True)
class OpenWriter:
    """`StateMachine.receive_snapshot`, then `SnapshotReceiver.opened` with its `next_chunk`."""

    meta: SnapshotMeta


@dataclass(frozen=True, slots=True)
class WriteChunk:
    """`SnapshotWriter.write`. If it raises SnapshotInvalid: forget later effects, call `SnapshotReceiver.invalid`."""

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Install:
    """Apply nothing from now on, await `SnapshotWriter.finish`, put log and membership in place; then
    `SnapshotReceiver.installed`, or `SnapshotReceiver.invalid` if it raised SnapshotInvalid."""

    meta: SnapshotMeta
    membership: Any


@dataclass(frozen=True, slots=True)
class AbortWriter:
    """`SnapshotWriter.abort`."""


SenderEffect = SendMessage | ReadChunk | CloseReader
ReceiverEffect = SendMessage | OpenWriter | WriteChunk | Install | AbortWriter


# The shapes on the wire.

_SHAPES: dict[int, tuple[Any, ...]] = {
    SnapshotMessage.OFFER: (int, int, int | None, int, object),
    SnapshotMessage.ACCEPT: (int, bool),
    SnapshotMessage.REFUSE: (int, str),
    SnapshotMessage.CHUNK: (int, int, bytes, bool),
    SnapshotMessage.ACK: (int,),
    SnapshotMessage.DONE: (bool, str),
}


def read_message(wire: Any) -> tuple[SnapshotMessage, str, list[Any]] | None:
    """What it is, the transfer's id, and the fields after it; None for what is none."""
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
