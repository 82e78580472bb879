"""The replica's side: match the journal of the active copy, store its blocks, adopt its sequence when in sync."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from palisade.catalog.activation import LocalSequence
from palisade.journal.blocks import UNSYNCED_BYTES_MAX, JournalEnd, read_blocks
from palisade.journal.channel import Channel, Silence
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import ReplicaRefused
from palisade.journal.messages import FORMAT, JournalMessageKind, read_refusal, runs_body


class FollowerSession:
    """`on_adopted` is called once this copy may become active."""

    def __init__(self, copy: CopyState, channel: Channel, on_adopted: Callable[[], None]) -> None:
        self._copy = copy
        self._log = copy.log
        self._channel = channel
        self._on_adopted = on_adopted
        self._silence = Silence(channel, copy.options.replica_timeout_s)
        self._dirty = asyncio.Event()
        self._synced = 0
        self._matched = False
        self._adopt: tuple[LocalSequence, int] | None = None
        self.in_sync = False

    async def run(self) -> None:
        """Runs until the connection ends. Raises JournalError (refused, damaged), OSError of the disk."""
        watching = asyncio.ensure_future(self._silence.watch(self._dirty.set))
        syncing: asyncio.Future[None] | None = None
        try:
            await self._greet()
            await self._match()
            syncing = asyncio.ensure_future(self._sync())
            while not syncing.done() and (message := await self._next()) is not None:
                await self._take(*message)
            if syncing.done():
                syncing.result()
        finally:
            self._channel.close()
            tasks = [each for each in (watching, syncing) if each is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next(self) -> tuple[int, Any] | None:
        """The next message; None at the end of the connection, or if nothing arrived for too long.

        Raises the error of a refusal."""
        message = await self._channel.receive(self._take_at_once)
        self._silence.heard()
        if message is not None and message[0] == JournalMessageKind.REFUSED:
            raise read_refusal(message[1]).error()
        return message

    def _take_at_once(self, kind: int, body: Any) -> bool:
        """Handles a block if the log has room for it; otherwise `_take` makes room first."""
        if kind == JournalMessageKind.BLOCKS and self._matched and self._has_room(len(body[0])):
            for block in read_blocks(body[0], self._log.end):
                self._log.append(block)
            self._dirty.set()
        elif kind != JournalMessageKind.HEARD:
            return False
        self._silence.heard()
        return True

    def _has_room(self, size: int) -> bool:
        return self._log.has_room and self._log.unsynced_bytes + size <= UNSYNCED_BYTES_MAX

    async def _expect(self, kind: JournalMessageKind) -> Any:
        message = await self._next()
        if message is None or message[0] != kind:
            raise ReplicaRefused("the active copy ended the connection; connecting again")
        return message[1]

    async def _greet(self) -> None:
        options = self._copy.options
        self._channel.send(JournalMessageKind.HELLO, [FORMAT, options.role])
        await self._expect(JournalMessageKind.WELCOME)
        self._channel.send(JournalMessageKind.ATTACH, [options.own.name, options.primary, runs_body(self._log.runs)])

    async def _match(self) -> None:
        sequence, last, chain = await self._expect(JournalMessageKind.ATTACHED)
        local = self._copy.state.local
        if local is not None and local.sequence >= sequence:
            raise ReplicaRefused(f"the active copy has sequence {sequence}, this one {local.sequence} already")
        common = JournalEnd(last, chain) if await self._log.chain_at(last) == chain else JournalEnd()
        await self._copy.begin_filling(common, sequence)
        await self._copy.settle()  # the last session may have ended between a write and its sync
        self._synced, self._matched = common.last, True
        self._channel.send(JournalMessageKind.MATCHED, [common.last])

    async def _take(self, kind: int, body: list[Any]) -> None:
        if kind == JournalMessageKind.BLOCKS:
            for block in read_blocks(body[0], self._log.end):
                if not self._log.has_room:
                    await self._make_room()
                elif self._log.unsynced_bytes + len(block.data) > UNSYNCED_BYTES_MAX:
                    await self._log.sync()
                self._log.append(block)
            self._dirty.set()
        elif kind == JournalMessageKind.ADOPT:
            sequence, epoch, last = body
            self._adopt = LocalSequence(sequence, epoch), last
            self._dirty.set()
        else:
            raise ReplicaRefused(f"the active copy sent unexpected message {kind}; connecting again")

    async def _make_room(self) -> None:
        if self._log.end.last > self._synced and self._log.has_file:
            await self._log.sync()
        await self._log.make_room()

    async def _sync(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            last = self._log.end.last
            if last > self._synced:
                await self._log.sync()
                self._synced = last
            self._channel.send(JournalMessageKind.SYNCED, [self._synced])
            if self._adopt is not None and self._synced >= self._adopt[1]:
                sequence, self._adopt = self._adopt[0], None
                await self._copy.adopt(sequence, replica=True)
                self.in_sync = True
                self._channel.send(JournalMessageKind.ADOPTED, [sequence.sequence])
                self._on_adopted()
