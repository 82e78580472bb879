"""Snapshots between members: executes the decisions of the pure `SnapshotSender` and `SnapshotReceiver`.

The order of an install makes a crash at any point harmless. First the membership of the snapshot is made durable in the
journal, beside the effective one. Then the state machine is replaced atomically. Then the log restarts after it. A
start in between finds a state that is ahead of its log, and the membership of the snapshot
(`journal_identity.realigned`). During an install nothing is applied, and this node does not campaign.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from palisade.base.snapshots import SnapshotGone, SnapshotInvalid, SnapshotMeta, SnapshotReader, SnapshotWriter
from palisade.raftgroup.journal_identity import keep_incoming
from palisade.raftgroup.log_retention import Arrivals
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Clock, Journal, StateMachine
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.snapshot_receiver import SnapshotReceiver
from palisade.raftgroup.snapshot_sender import SnapshotSender, TransferOutcome
from palisade.raftgroup.snapshot_transfer import (
    AbortWriter,
    CloseReader,
    Install,
    OpenWriter,
    ReadChunk,
    SenderEffect,
    SendMessage,
    TransferTiming,
    WriteChunk,
)

log = logging.getLogger(__name__)

RETRY_S = 2.0
"""How long a follower waits for another snapshot after a failed transfer."""


class SnapshotOwner(Protocol):
    """The group's callbacks for its snapshots."""

    def spawn(self, coroutine: Any) -> None: ...
    def fail(self, error: Exception) -> None:
        """The state of the node cannot be trusted any more."""
        ...

    def installed(self, meta: SnapshotMeta, membership: Membership) -> None:
        """A snapshot has become the state of the machine."""
        ...


@dataclass(slots=True)
class _Sending:
    sender: SnapshotSender
    reader: SnapshotReader


class Snapshots:
    """`send` is that of the transport. Everything happens on the event loop of the group."""

    def __init__(
        self,
        replica: Replica,
        *,
        machine: StateMachine,
        journal: Journal,
        clock: Clock,
        send: Callable[[str, int, Any], bool],
        owner: SnapshotOwner,
        timing: TransferTiming | None = None,
    ) -> None:
        self._replica = replica
        self._machine = machine
        self._journal = journal
        self._clock = clock
        self._send = send
        self._owner = owner
        self._timing = timing or TransferTiming()
        self._sending: dict[str, _Sending] = {}
        self._opening: set[str] = set()
        self._connected: set[str] = set()
        self._not_before: dict[str, float] = {}
        self._arrivals = Arrivals()
        self._receiver = SnapshotReceiver(self._timing)
        self._writer: SnapshotWriter | None = None

    # State.

    def sends_to(self, member: str) -> bool:
        return member in self._sending or member in self._opening

    @property
    def receiving(self) -> SnapshotMeta | None:
        return self._receiver.receiving

    def oldest_index(self) -> int | None:
        """The log must keep the entries after this index: that of the oldest snapshot in transfer or just installed."""
        arrived = self._arrivals.needed(self._replica.engine.match_index, self._clock.now())
        indexes = [sending.sender.meta.index for sending in self._sending.values()]
        if self._opening:
            indexes.append(self._machine.durable[0])
        if arrived is not None:
            indexes.append(arrived)
        return min(indexes, default=None)

    # Events.

    def tick(self) -> None:
        now = self._clock.now()
        if not self._replica.engine.leads:
            self._abort_all("this node has lost leadership")
        else:
            self._begin_wanted(now)
        for member, sending in list(self._sending.items()):
            self._carry_out(member, sending, sending.sender.tick(now))
        self._receive_effects(self._receiver.tick(now))

    def connected(self, member: str) -> None:
        self._connected.add(member)
        sending = self._sending.get(member)
        if sending is not None:
            self._carry_out(member, sending, sending.sender.connected(self._clock.now()))

    def disconnected(self, member: str) -> None:
        self._connected.discard(member)
        sending = self._sending.get(member)
        if sending is not None:
            self._carry_out(member, sending, sending.sender.disconnected(self._clock.now()))

    def receive(self, member: str, body: Any) -> None:
        now, engine = self._clock.now(), self._replica.engine
        sending = self._sending.get(member)
        if sending is not None:
            self._carry_out(member, sending, sending.sender.receive(body, now))
        effects = self._receiver.receive(member, body, now, term=engine.term, commit_index=engine.commit_index)
        self._receive_effects(effects)

    def close(self) -> None:
        """The received part stays on disk, to be continued after a restart."""
        self._abort_all("this node is stopping")

    # The leader's side.

    def _begin_wanted(self, now: float) -> None:
        for member in self._replica.replication.wanting_snapshot():
            if not self.sends_to(member) and now >= self._not_before.get(member, 0.0):
                self._opening.add(member)
                self._owner.spawn(self._begin(member))

    async def _begin(self, member: str) -> None:
        try:
            reader = await self._machine.open_snapshot()
        except Exception as error:
            self._opening.discard(member)
            self._owner.fail(error)
            return
        self._opening.discard(member)
        engine, now = self._replica.engine, self._clock.now()
        if not engine.leads or member not in self._replica.replication.wanting_snapshot():
            reader.close()
            return
        membership = self._replica.membership_at(reader.meta.index).to_wire()
        connected = member in self._connected
        sender = SnapshotSender(member, reader.meta, membership, engine.term, self._timing, now, connected=connected)
        log.info("sending a snapshot: index=%d member=%s", reader.meta.index, member)
        sending = self._sending[member] = _Sending(sender, reader)
        self._carry_out(member, sending, sender.start(now))

    def _carry_out(self, member: str, sending: _Sending, effects: Iterable[SenderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, SendMessage):
                self._send(member, MessageKind.SNAPSHOT, effect.body)
            elif isinstance(effect, ReadChunk):
                asyncio.get_running_loop().call_soon(self._read, member, sending, effect.number)
            elif isinstance(effect, CloseReader):
                self._ended(member, sending)

    def _read(self, member: str, sending: _Sending, number: int) -> None:
        """In a separate turn, so that two pieces are never read without a turn of the group in between."""
        if self._sending.get(member) is not sending:
            return
        try:
            data = sending.reader.chunk(number)
        except (SnapshotGone, SnapshotInvalid) as error:
            effects = sending.sender.unreadable(str(error))
        except Exception as error:
            self._owner.fail(error)
            return
        else:
            effects = sending.sender.read(number, data, self._clock.now())
        self._carry_out(member, sending, effects)

    def _ended(self, member: str, sending: _Sending) -> None:
        self._sending.pop(member, None)
        sending.reader.close()
        sender = sending.sender
        if sender.outcome is TransferOutcome.FAILED:
            log.warning("snapshot not sent: member=%s reason=%s", member, sender.reason)
            self._not_before[member] = self._clock.now() + RETRY_S
        elif self._replica.engine.leads:
            log.info("snapshot sent: member=%s index=%d outcome=%s", member, sender.meta.index, sender.outcome)
            self._replica.follower_holds(member, sender.meta.index)
            self._arrivals.note(member, self._journal.last.index, self._clock.now())

    def _abort_all(self, reason: str) -> None:
        for member, sending in list(self._sending.items()):
            self._carry_out(member, sending, sending.sender.abort(reason))

    # The follower's side.

    def _receive_effects(self, effects: Iterable[Any]) -> None:
        for effect in effects:
            if isinstance(effect, SendMessage):
                self._send(effect.member, MessageKind.SNAPSHOT, effect.body)
            elif isinstance(effect, OpenWriter):
                self._writer = self._machine.receive_snapshot(effect.meta)
                first = self._writer.next_chunk
                log.info("receiving a snapshot: index=%d first_piece=%d", effect.meta.index, first)
                self._receive_effects(self._receiver.opened(first))
            elif isinstance(effect, AbortWriter):
                self._abort_writer()
            elif isinstance(effect, Install):
                self._begin_install(effect)
            elif isinstance(effect, WriteChunk) and not self._write(effect):
                return

    def _write(self, effect: WriteChunk) -> bool:
        """False if the snapshot is abandoned, together with later effects."""
        if self._writer is None:
            return False
        try:
            self._writer.write(effect.number, effect.data)
        except SnapshotInvalid as error:
            self._give_up(str(error))
            return False
        return True

    def _abort_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abort()

    def _give_up(self, reason: str) -> None:
        log.warning("received snapshot discarded: reason=%s", reason)
        self._receive_effects(self._receiver.invalid(reason, self._clock.now()))

    def _begin_install(self, effect: Install) -> None:
        try:
            membership = Membership.from_wire(effect.membership)
        except (TypeError, ValueError) as error:
            self._give_up(f"its membership is malformed: {error}")
            return
        self._replica.installing = True
        self._owner.spawn(self._install(effect.meta, membership))

    async def _install(self, meta: SnapshotMeta, membership: Membership) -> None:
        """Nothing is applied after the receiver has found the snapshot to be ahead of the state."""
        try:
            keep_incoming(self._journal, meta.index, meta.term, membership)
            await self._journal.sync()
            if self._writer is None:
                self._give_up("nothing of it was received")
                return
            await self._writer.finish()
            self._writer = None
            self._owner.installed(meta, membership)
            log.info("snapshot installed: index=%d", meta.index)
            self._receive_effects(self._receiver.installed(self._clock.now()))
        except SnapshotInvalid as error:
            self._give_up(str(error))
        except Exception as error:
            self._owner.fail(error)
        finally:
            self._replica.installing = False
