"""The active copy's side of one replica: find the common part, fill, join, follow."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from palisade.catalog.activation import ReplicaEvent
from palisade.journal.acknowledgement import Acknowledgement
from palisade.journal.blocks import JournalBlock
from palisade.journal.channel import Channel, Silence
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import ReplicaRefused
from palisade.journal.history import common_end
from palisade.journal.messages import JournalMessageKind, runs_from

if TYPE_CHECKING:
    from palisade.journal.agreed import Agreed

WINDOW_BYTES = 16 << 20
"""Maximum size of the blocks that were sent to the replica and are not synced by it."""


class Serving(Protocol):
    """The part of `Active` that a session uses."""

    agreed: Agreed
    progress: Acknowledgement

    def advance(self) -> None: ...


class ReplicaSession:
    def __init__(self, active: Serving, copy: CopyState, channel: Channel, body: list[Any]) -> None:
        self._active = active
        self._copy = copy
        self._channel = channel
        name, primary, runs = body
        self.name, self.primary = str(name), bool(primary)
        self._theirs = runs_from(runs)
        self._sent: list[tuple[int, int]] = []
        """(last entry, bytes) of each message that the replica has not synced."""
        self._outstanding = 0
        self._position: int | None = None
        """Everything up to this entry was sent; None while the common part is not known."""
        self._at_end = False
        """Whether the next block can be sent as soon as it is made."""
        self._behind = asyncio.Event()
        self._room = asyncio.Event()
        self._silence = Silence(channel, copy.options.replica_timeout_s)

    def close(self) -> None:
        self._channel.close()

    async def run(self) -> None:
        """Runs until the connection ends, or nothing arrives for too long. Raises ReplicaRefused; JournalDamaged and
        OSError if the active copy cannot read its journal."""
        watching = asyncio.ensure_future(self._silence.watch(self._show_life))
        sending: asyncio.Future[None] | None = None
        try:
            self._position = await self._match()
            if self._position is None:
                return
            sending = asyncio.ensure_future(self._fill())
            sending.add_done_callback(lambda _: self._channel.close())
            while await self._receive():
                pass
            if sending.done():
                sending.result()
        finally:
            self._channel.close()
            tasks = [each for each in (watching, sending) if each is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _show_life(self) -> None:
        """Sends messages periodically, so that the replica notices a dead connection."""
        self._channel.send(JournalMessageKind.HEARD, [])

    async def _match(self) -> int | None:
        log, record = self._copy.log, self._active.agreed.record
        chains = {run.last: await log.chain_at(run.last) for run in self._theirs if run.last <= log.end.last}
        common = common_end(log.runs, self._theirs, chains.get)
        self._channel.send(JournalMessageKind.ATTACHED, [record.sequence if record else 0, common.last, common.chain])
        message = await self._next()
        if message is None:
            return None
        kind, body = message
        if kind != JournalMessageKind.MATCHED or body[0] not in (0, common.last):
            raise ReplicaRefused(f"replica {self.name} sent unexpected message {kind}; it is attached again")
        return int(body[0])

    async def _next(self) -> tuple[int, Any] | None:
        """The next message; None once the connection has ended or the replica was silent for too long."""
        message = await self._channel.receive()
        self._silence.heard()
        return message

    def made(self, block: JournalBlock) -> None:
        """The active copy writes this block next, in the same turn of the event loop."""
        if self._at_end and self._outstanding <= WINDOW_BYTES:
            self._send(block.last, block.data)
        else:
            self._at_end = False
            self._behind.set()

    def _send(self, last: int, data: bytes) -> None:
        self._position = last
        self._sent.append((last, len(data)))
        self._outstanding += len(data)
        self._channel.send(JournalMessageKind.BLOCKS, [data])

    async def _fill(self) -> None:
        """Send the blocks of the log until its end is reached; from then on, `made` sends each new block."""
        log = self._copy.log
        while self._position is not None:
            self._behind.clear()
            if blocks := await log.blocks_from(self._position + 1):
                self._send(blocks[-1].last, b"".join(block.data for block in blocks))
                await self._channel.drain()
                while self._outstanding > WINDOW_BYTES:
                    self._room.clear()
                    await self._room.wait()
            else:
                self._at_end = True
                await self._behind.wait()

    async def _receive(self) -> bool:
        message = await self._channel.receive(self._take_synced)
        self._silence.heard()
        if message is None:
            return False
        if message[0] != JournalMessageKind.ADOPTED:
            raise ReplicaRefused(f"replica {self.name} sent unexpected message {message[0]}; it is attached again")
        self._active.progress.adopted = True
        return True

    def _take_synced(self, kind: int, body: Any) -> bool:
        if kind != JournalMessageKind.SYNCED:
            return False
        self._silence.heard()
        self._synced(int(body[0]))
        return True

    def _synced(self, last: int) -> None:
        active, progress = self._active, self._active.progress
        progress.replica_synced = last
        while self._sent and self._sent[0][0] <= last:
            self._outstanding -= self._sent.pop(0)[1]
        self._room.set()
        if progress.may_join and active.agreed.record is not None:
            # before the sequence is sent, because the replica may take over from then on
            progress.happens(ReplicaEvent.CAUGHT_UP)
            record = active.agreed.record
            self._channel.send(JournalMessageKind.ADOPT, [record.sequence, record.epoch, progress.acknowledged])
        active.advance()
