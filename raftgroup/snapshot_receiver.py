"""The follower's side (`snapshot_transfer.py`): at most one transfer, from the current leader.

A transfer belongs to a snapshot, not to a connection or a leader: a leader that offers the same one again learns which
piece comes next. Another snapshot replaces it if its leader is as new and its index is not lower; the older writer is
discarded. Once the install has begun nothing replaces it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup.snapshot_transfer import (
    AbortWriter,
    Install,
    OpenWriter,
    ReceiverEffect,
    SendMessage,
    SnapshotMessage,
    TransferRefusal,
    TransferTiming,
    WriteChunk,
    accept,
    acknowledge,
    done,
    is_intact,
    read_message,
    refuse,
)


@dataclass(slots=True)
class _Transfer:
    """`leader`: the last one that offered it. `next_chunk` is None until its writer is open."""

    meta: SnapshotMeta
    membership: Any
    leader: str
    leader_term: int
    heard_at: float
    next_chunk: int | None = None
    installing: bool = False

    @property
    def age(self) -> tuple[int, int]:
        return self.leader_term, self.meta.index


@dataclass(frozen=True, slots=True)
class _Finished:
    transfer: str
    ok: bool
    text: str
    at: float


class SnapshotReceiver:
    """`term` and `commit_index` in `receive` are the follower's own at that moment."""

    def __init__(self, timing: TransferTiming) -> None:
        self._timing = timing
        self._current: _Transfer | None = None
        self._finished: _Finished | None = None

    @property
    def receiving(self) -> SnapshotMeta | None:
        """The snapshot that is being received or installed."""
        return self._current.meta if self._current else None

    @property
    def next_chunk(self) -> int:
        return (self._current.next_chunk if self._current else None) or 0

    @property
    def installing(self) -> bool:
        """Nothing may be applied now."""
        return self._current is not None and self._current.installing

    # Events.

    def receive(self, member: str, wire: Any, now: float, *, term: int, commit_index: int) -> list[ReceiverEffect]:
        """A message of a leader."""
        message = read_message(wire)
        if message is None:
            return []
        kind, transfer, fields = message
        if kind is SnapshotMessage.OFFER:
            return self._offered(member, transfer, fields, now, term, commit_index)
        if kind is SnapshotMessage.CHUNK:
            return self._got_chunk(member, transfer, fields, now, commit_index)
        return []

    def opened(self, next_chunk: int) -> list[ReceiverEffect]:
        """The writer of the current transfer is open."""
        current = self._current
        if current is None or current.next_chunk is not None:
            return []
        current.next_chunk = next_chunk
        return [SendMessage(current.leader, accept(current.meta.id, next_chunk, False))]

    def installed(self, now: float) -> list[ReceiverEffect]:
        """The snapshot is the state of the machine."""
        return self._finish(True, "", now)

    def invalid(self, reason: str, now: float) -> list[ReceiverEffect]:
        """Its pieces are not a valid snapshot: it is discarded, and the leader has to create another one."""
        aborted = self._current is not None
        return [*([AbortWriter()] if aborted else []), *self._finish(False, reason, now)]

    def tick(self, now: float) -> list[ReceiverEffect]:
        """Call it periodically: a transfer that no leader continues is discarded."""
        current = self._current
        if current is None or current.installing or now - current.heard_at <= self._timing.receiver_idle_s:
            return []
        self._current = None
        return [AbortWriter()]

    # Reactions.

    def _offered(
        self, member: str, transfer: str, fields: list[Any], now: float, term: int, commit_index: int
    ) -> list[ReceiverEffect]:
        index, snapshot_term, size_bytes, leader_term, membership = fields
        if self._is_finished(transfer, now):
            return self._report_outcome(member)
        if leader_term < term:
            text = f"the offer is of term {leader_term}, this follower is in term {term}"
            return [SendMessage(member, refuse(transfer, TransferRefusal.OLD_TERM, text))]
        current = self._current
        if current is not None and current.installing and current.meta.id != transfer:
            return self._busy(member, transfer, f"the snapshot of {current.meta.index} is being installed")
        if index <= commit_index and not self.installing:
            return self._not_ahead(member, transfer, index, commit_index)
        if current is not None and current.meta.id == transfer:
            current.leader, current.leader_term, current.heard_at = member, max(leader_term, current.leader_term), now
            if current.next_chunk is None:
                return []
            return [SendMessage(member, accept(transfer, current.next_chunk, current.installing))]
        if current is not None and (leader_term, index) < current.age:
            return self._busy(member, transfer, f"the newer snapshot of {current.meta.index} is being received")
        meta = SnapshotMeta(transfer, index, snapshot_term, size_bytes)
        self._current = _Transfer(meta, membership, member, leader_term, now)
        return [*([AbortWriter()] if current is not None else []), OpenWriter(meta)]

    def _got_chunk(
        self, member: str, transfer: str, fields: list[Any], now: float, commit_index: int
    ) -> list[ReceiverEffect]:
        number, crc32, data, last = fields
        current = self._current
        if current is None or current.meta.id != transfer or current.next_chunk is None:
            if self._is_finished(transfer, now):
                return self._report_outcome(member)
            return [SendMessage(member, refuse(transfer, TransferRefusal.UNKNOWN, "unknown transfer"))]
        current.heard_at = now
        if not current.installing and current.meta.index <= commit_index:
            return self._not_ahead(member, transfer, current.meta.index, commit_index)
        effects: list[ReceiverEffect] = []
        if number == current.next_chunk and is_intact(data, crc32) and not current.installing:
            current.next_chunk += 1
            effects.append(WriteChunk(number, data))
        effects.append(SendMessage(member, acknowledge(transfer, current.next_chunk)))
        if last and number + 1 == current.next_chunk and not current.installing:
            current.installing = True
            effects.append(Install(current.meta, current.membership))
        return effects

    def _not_ahead(self, member: str, transfer: str, index: int, commit_index: int) -> list[ReceiverEffect]:
        text = f"the snapshot is of {index}, this follower has committed {commit_index}"
        refusal = SendMessage(member, refuse(transfer, TransferRefusal.NOT_AHEAD, text))
        if self._current is not None and self._current.meta.id == transfer:
            self._current = None
            return [AbortWriter(), refusal]
        return [refusal]

    def _busy(self, member: str, transfer: str, text: str) -> list[ReceiverEffect]:
        return [SendMessage(member, refuse(transfer, TransferRefusal.BUSY, text))]

    def _finish(self, ok: bool, text: str, now: float) -> list[ReceiverEffect]:
        current, self._current = self._current, None
        if current is None:
            return []
        self._finished = _Finished(current.meta.id, ok, text, now)
        return self._report_outcome(current.leader)

    def _is_finished(self, transfer: str, now: float) -> bool:
        """Whether this transfer has ended here. A failure is forgotten after a while: a newly created snapshot may have
        the same name."""
        finished = self._finished
        if finished is None or finished.transfer != transfer:
            return False
        return finished.ok or now - finished.at <= self._timing.failure_memory_s

    def _report_outcome(self, member: str) -> list[ReceiverEffect]:
        finished = self._finished
        return [SendMessage(member, done(finished.transfer, finished.ok, finished.text))] if finished else []
