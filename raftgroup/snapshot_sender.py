"""The leader's side of one transfer (`snapshot_transfer.py`): one follower, one snapshot, one ending.

`base` is the piece that the follower needs next, as far as known. Pieces from there on are read one at a time, one
ahead of sending (to recognize the last one), and kept until they are acknowledged. Repeated or late messages do no
lasting harm: whenever there is no progress, the follower is offered the snapshot again, and its ACCEPT is
authoritative, even if it has lost pieces that it had acknowledged. After an ACCEPT the piece before the next one is
sent again: a follower that has all pieces and was stopped before the install learns from it that it was the last one.
"""

from __future__ import annotations

import enum
from typing import Any

from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup.snapshot_transfer import (
    CloseReader,
    ReadChunk,
    SenderEffect,
    SendMessage,
    SnapshotMessage,
    TransferRefusal,
    TransferTiming,
    chunk,
    offer,
    read_message,
)

PATIENCE = 3
"""How many times the interval of questions doubles."""


class TransferOutcome(enum.Enum):
    INSTALLED = "installed"
    NOT_NEEDED = "not needed"
    FAILED = "failed"


class SnapshotSender:
    """`outcome` is None while it runs; `reason` explains FAILED. No effect follows after CloseReader."""

    def __init__(
        self,
        member: str,
        meta: SnapshotMeta,
        membership: Any,
        leader_term: int,
        timing: TransferTiming,
        now: float,
        *,
        connected: bool = True,
    ) -> None:
        self.member = member
        self.meta = meta
        self.outcome: TransferOutcome | None = None
        self.reason = ""
        self.sent_bytes = 0
        self._offer = offer(meta, leader_term, membership)
        self._timing = timing
        self._connected = connected
        self._offered = False
        self._accepted = False
        self._base = 0
        self._sent = 0
        self._furthest = 0
        self._asked = 0
        self._total: int | None = None
        self._chunks: dict[int, bytes] = {}
        self._reading: int | None = None
        self._went_back = False
        self._began_at = self._heard_at = self._progress_at = self._moved_at = self._left_at = now

    # Events.

    def start(self, now: float) -> list[SenderEffect]:
        return self._make_offer(now)

    def connected(self, now: float) -> list[SenderEffect]:
        """The follower is reachable (again): ask for its progress."""
        self._connected = True
        self._heard_at = now
        return self._make_offer(now)

    def disconnected(self, now: float) -> list[SenderEffect]:
        self._connected = False
        self._left_at = now
        return []

    def receive(self, wire: Any, now: float) -> list[SenderEffect]:
        """A message of the follower."""
        message = read_message(wire)
        if message is None or message[1] != self.meta.id or self.outcome is not None:
            return []
        self._heard_at = now
        kind, _, fields = message
        if kind is SnapshotMessage.ACCEPT:
            return self._go_on_from(fields[0], fields[1], now)
        if kind is SnapshotMessage.ACK:
            return self._acknowledged(fields[0], now)
        if kind is SnapshotMessage.DONE:
            ok, text = fields
            return self._end(TransferOutcome.INSTALLED if ok else TransferOutcome.FAILED, text)
        if kind is SnapshotMessage.REFUSE:
            return self._refused(fields[0], fields[1], now)
        return []

    def read(self, number: int, data: bytes | None, now: float) -> list[SenderEffect]:
        """The answer to ReadChunk; None past the end."""
        if self.outcome is not None or number != self._reading:
            return []
        self._reading = None
        if data is not None:
            self._chunks[number] = data
        elif number == 0:
            return self._end(TransferOutcome.FAILED, "the snapshot has no pieces")
        else:
            self._total = number
        return self._pump(now)

    def unreadable(self, reason: str) -> list[SenderEffect]:
        """The snapshot can no longer be read: another one is needed."""
        return self._end(TransferOutcome.FAILED, reason)

    def abort(self, reason: str) -> list[SenderEffect]:
        """This node has lost leadership, or the follower is gone permanently."""
        return self._end(TransferOutcome.FAILED, reason)

    def tick(self, now: float) -> list[SenderEffect]:
        """Call it a few times a second."""
        if self.outcome is not None:
            return []
        overdue = self._overdue(now)
        if overdue:
            return self._end(TransferOutcome.FAILED, f"{self.member} {overdue}")
        if not self._connected or now - self._moved_at < self._timing.resend_s * 2 ** min(self._asked, PATIENCE):
            return []
        self._asked += 1
        return self._make_offer(now)

    # Reactions.

    def _overdue(self, now: float) -> str:
        timing = self._timing
        if now - self._began_at > timing.life_s:
            return f"did not receive its snapshot within {timing.life_s:g} s"
        if not self._connected:
            away = now - self._left_at > timing.absence_s
            return f"was away for {timing.absence_s:g} s" if away else ""
        if now - self._heard_at > timing.silence_s:
            return f"has not answered for {timing.silence_s:g} s"
        installing = self._furthest == self._total
        limit = timing.install_s if installing else timing.stall_s
        if now - self._progress_at > limit:
            return f"{'is still installing' if installing else 'has made no progress'} after {limit:g} s"
        return ""

    def _make_offer(self, now: float) -> list[SenderEffect]:
        if self.outcome is not None or not self._connected:
            return []
        self._offered = True
        self._moved_at = now
        return [SendMessage(self.member, self._offer)]

    def _go_on_from(self, next_chunk: int, installing: bool, now: float) -> list[SenderEffect]:
        if not self._offered:
            return []
        if self._total is not None and next_chunk > self._total:
            text = f"{self.member} reports {next_chunk} pieces of a snapshot with {self._total}"
            return self._end(TransferOutcome.FAILED, text)
        self._offered = False
        self._accepted = True
        if next_chunk < self._furthest:
            self._furthest, self._progress_at = next_chunk, now
        self._note_progress(next_chunk, now)
        self._base = self._sent = next_chunk if installing else max(next_chunk - 1, 0)
        self._went_back = False
        self._forget_what_is_acknowledged()
        return self._pump(now)

    def _acknowledged(self, next_chunk: int, now: float) -> list[SenderEffect]:
        if not self._accepted or next_chunk < self._base or (self._total is not None and next_chunk > self._total):
            return []
        if next_chunk == self._base:
            if self._went_back or self._sent == self._base:
                return []
            self._went_back = True
            self._sent = self._base
            return self._pump(now)
        self._base = next_chunk
        self._sent = max(self._sent, next_chunk)
        self._went_back = False
        self._moved_at = now
        self._note_progress(next_chunk, now)
        self._forget_what_is_acknowledged()
        return self._pump(now)

    def _note_progress(self, next_chunk: int, now: float) -> None:
        if next_chunk > self._furthest:
            self._furthest = next_chunk
            self._progress_at = now
            self._asked = 0

    def _refused(self, refusal: int, text: str, now: float) -> list[SenderEffect]:
        if refusal == TransferRefusal.NOT_AHEAD:
            return self._end(TransferOutcome.NOT_NEEDED, text)
        if refusal == TransferRefusal.BUSY:
            self._accepted = False
            self._progress_at = now
            return []
        if refusal == TransferRefusal.UNKNOWN:
            if not self._accepted:
                return []
            self._accepted = False
            return self._make_offer(now)
        return self._end(TransferOutcome.FAILED, text)

    def _pump(self, now: float) -> list[SenderEffect]:
        """Send what the window allows, and read the next piece."""
        effects: list[SenderEffect] = []
        if not self._accepted or not self._connected:
            return effects
        stop = self._base + self._timing.window
        while self._sent < stop and self._is_ready(self._sent):
            data = self._chunks[self._sent]
            effects.append(
                SendMessage(self.member, chunk(self.meta.id, self._sent, data, self._sent + 1 == self._total))
            )
            self.sent_bytes += len(data)
            self._sent += 1
            self._moved_at = now
        missing = self._first_missing()
        if self._reading is None and missing <= stop and missing != self._total:
            self._reading = missing
            effects.append(ReadChunk(missing))
        return effects

    def _is_ready(self, number: int) -> bool:
        """A piece can be sent once it is known whether it is the last one."""
        return number in self._chunks and (number + 1 in self._chunks or self._total is not None)

    def _first_missing(self) -> int:
        number = self._base
        while number in self._chunks:
            number += 1
        return number

    def _forget_what_is_acknowledged(self) -> None:
        for number in [number for number in self._chunks if number < self._base]:
            del self._chunks[number]

    def _end(self, outcome: TransferOutcome, reason: str) -> list[SenderEffect]:
        if self.outcome is not None:
            return []
        self.outcome = outcome
        self.reason = reason
        self._chunks.clear()
        return [CloseReader()]
