"""The active copy: appends, replicates, acknowledges, until its role ends.

Entries that arrive while a block is written form the next block. The replica gets each block before the local write, so
both disks work at the same time. `acknowledgement.py` decides which entries may be acknowledged, after every sync and
before every response.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from palisade.base.counted import counted
from palisade.base.errors import PalisadeError
from palisade.catalog.activation import LocalSequence, ReplicaEvent, ReplicaState
from palisade.client.claims import Leadership
from palisade.client.lease import LeaseLost
from palisade.journal.acknowledgement import Acknowledgement, reserve_s
from palisade.journal.agreed import Agreed, RoleRecord
from palisade.journal.blocks import BLOCK_BYTES_MAX, check_entry, make_block
from palisade.journal.channel import Channel
from palisade.journal.copy_state import CopyState
from palisade.journal.errors import AppendUnknown, EntryRefused, JournalDamaged, JournalError, NotActive
from palisade.journal.replica_session import ReplicaSession

TICK_S = 0.05
FAILBACK_CHECK_S = 0.25
HAND_OVER_S = 1.0
RETRY_S = 0.1
HELD_BYTES_MAX = 64 << 20
"""Maximum size of the requests without a response; beyond it, appends are refused."""
REQUEST_BYTES = 256
"""Size of a request without its entries."""
Appended = tuple[int, int]
"""The numbers of the first and the last entry."""
Answer = Callable[[Appended | JournalError], object]
"""Called once for each request, with the numbers of its entries or the reason for its refusal."""


class Active:
    """`agreed`: the committed record of this copy."""

    def __init__(self, copy: CopyState, record: RoleRecord, lock: Leadership, agreed: Agreed) -> None:
        self._copy = copy
        self._log = copy.log
        self._record = record
        self._lock = lock
        self.agreed = agreed
        self._reserve_s = reserve_s(record.ttl_s)
        self.progress = Acknowledgement(self._log.end.last)
        self._queue: deque[tuple[Sequence[bytes], int, Answer]] = deque()
        self._waiting: deque[tuple[Appended, int, Answer]] = deque()
        self._held_bytes = 0
        self._work = asyncio.Event()
        self._lost = asyncio.Event()
        self._unreadable = asyncio.Event()
        self._failure: JournalDamaged | OSError | None = None
        """Why entries of this copy cannot be read."""
        self._closing = False
        self._replica: ReplicaSession | None = None

    @property
    def sequence(self) -> int:
        return self.agreed.record.sequence if self.agreed.record else 0

    @property
    def remaining_s(self) -> float:
        """The time for which no other copy can be active."""
        return self._lock.lease.remaining_s - self._reserve_s

    @property
    def in_time(self) -> bool:
        return self.remaining_s > 0

    @property
    def held_bytes(self) -> int:
        """Size of the requests without a response."""
        return self._held_bytes

    @property
    def replica_name(self) -> str | None:
        return self._replica.name if self._replica else None

    def append(self, contents: Sequence[bytes], answer: Answer) -> None:
        """`answer` is called with the numbers once they are acknowledged, or with AppendUnknown or NotActive.

        Raises EntryRefused, NotActive; then it is not called."""
        for content in contents:
            check_entry(content)
        size = sum(map(len, contents)) + 4 * len(contents)
        if not contents or size > BLOCK_BYTES_MAX:
            given = f"{counted(len(contents), 'entry')} of {counted(size, 'byte')}"
            raise EntryRefused(f"{given}: append 1 byte to {BLOCK_BYTES_MAX} at a time")
        if self._closing or not self.in_time:
            raise NotActive("this copy is giving up its role, or may have lost it; nothing was appended")
        if self._held_bytes + size + REQUEST_BYTES > HELD_BYTES_MAX:
            raise NotActive(f"{self._held_bytes} bytes wait for the disks; nothing was appended; retry later")
        self._held_bytes += size + REQUEST_BYTES
        self._queue.append((contents, size, answer))
        self._work.set()

    async def read(self, first: int, size: int) -> tuple[list[tuple[int, bytes]], int]:
        """Acknowledged entries from `first` on, about `size` bytes, and the last acknowledged number."""
        last = self.progress.acknowledged
        with self._journal_is_readable():
            blocks = await self._log.blocks_from(max(1, first), size) if first <= last else []
        found: list[tuple[int, bytes]] = []
        for block in blocks:
            for number, content in block.entries():
                if first <= number <= last and size > 0:
                    found.append((number, content))
                    size -= len(content) + 8
        if not self.in_time:
            raise NotActive("this copy may have lost its role while it read; read from the active one")
        return found, last

    async def run(self) -> None:
        """Runs under the lock until the role is handed over. Raises LeaseLost, JournalDamaged, OSError."""
        await first_end_of(
            self._write(),
            self._advance_regularly(),
            self._raise_when_lost(),
            self._fail_back(),
            self._stop_when_unreadable(),
        )

    @contextmanager
    def _journal_is_readable(self) -> Iterator[None]:
        """Stops this copy if its journal is not readable: a replica in sync has the same entries, and takes over.

        Raises NotActive."""
        try:
            yield
        except (JournalDamaged, OSError) as error:
            self._failure, self._closing = error, True
            self._unreadable.set()
            name = self._copy.options.own.name
            raise NotActive(f"{name} releases its role, because it cannot read its journal: {error}") from error

    async def _stop_when_unreadable(self) -> None:
        await self._unreadable.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """End every request: written entries may survive, all others were not appended."""
        self._closing = True
        waiting, queued = list(self._waiting), list(self._queue)
        self._waiting.clear()
        self._queue.clear()
        self._held_bytes = 0
        for _, _, answer in waiting:
            answer(AppendUnknown("the active copy lost its role before it acknowledged"))
        for _, _, answer in queued:
            answer(NotActive("the active copy lost its role; nothing was appended"))
        if self._replica is not None:
            self._replica.close()

    # Writing.

    async def _write(self) -> None:
        while True:
            await self._work.wait()
            if not self._log.has_room:
                await self._log.make_room()
            contents = self._take()
            block = make_block(self._log.end, self.sequence, contents)
            if self._replica is not None:
                self._replica.made(block)  # before the local write, because the entry waits for the replica's disk
            self._log.append(block)
            self.progress.appended = block.last
            await self._log.sync()
            self.progress.synced = block.last
            self.advance()
            await asyncio.sleep(0)  # requests that arrived meanwhile join the next block

    def _take(self) -> list[bytes]:
        taken: list[bytes] = []
        total, number = 0, self._log.end.last
        while self._queue and total + self._queue[0][1] <= BLOCK_BYTES_MAX:
            contents, size, answer = self._queue.popleft()
            taken += contents
            total += size
            self._waiting.append(((number + 1, number + len(contents)), size, answer))
            number += len(contents)
        if not self._queue:
            self._work.clear()
        return taken

    def advance(self) -> None:
        """Respond to the requests that may be acknowledged now."""
        if not self._waiting:
            self.progress.advance(in_time=self.in_time)
            return
        last = self.progress.advance(in_time=self.in_time)
        while self._waiting and self._waiting[0][0][1] <= last:
            numbers, size, answer = self._waiting.popleft()
            self._held_bytes -= size + REQUEST_BYTES
            answer(numbers)

    async def _advance_regularly(self) -> None:
        """A renewal of the lease may allow acknowledgements that were too late before."""
        while True:
            await asyncio.sleep(TICK_S)
            self.advance()

    # The replica.

    async def replicate(self, channel: Channel, body: list[Any]) -> None:
        """Serve one replica until its connection ends. Raises NotActive, ReplicaRefused."""
        if self._closing or self.progress.replica is not ReplicaState.NONE or self._replica is not None:
            raise NotActive(f"the replica is {self.progress.replica.value}; try again later")
        session = self._replica = ReplicaSession(self, self._copy, channel, body)
        self.progress.happens(ReplicaEvent.ATTACHED)
        try:
            with self._journal_is_readable():
                await session.run()
        finally:
            self._replica = None
            self.progress.happens(ReplicaEvent.DETACHED)
            self._lost.set()

    async def _raise_when_lost(self) -> None:
        """The lost replica may have every acknowledged entry; it must not take over once later entries are acknowledged
        without it."""
        while True:
            await self._lost.wait()
            self._lost.clear()
            self._copy.tally.replicas_lost += self.progress.replica is ReplicaState.LOST
            while self.progress.replica is ReplicaState.LOST:
                try:
                    await self._raise()
                except LeaseLost:
                    raise
                except (PalisadeError, TimeoutError):
                    await asyncio.sleep(RETRY_S)

    async def _raise(self) -> None:
        """A claim that may have been written is followed by the next one, never resumed."""
        seen = await self._record.read()
        if seen.record is None or seen.record.owner != self._copy.options.own.name:
            raise LeaseLost("another copy owns the record")
        self.agreed = await raise_sequence(self._copy, self._record, self._lock, seen)
        self.progress.happens(ReplicaEvent.SEQUENCE_RAISED)
        self.advance()

    # Failback.

    async def _fail_back(self) -> None:
        """Returns once the configured primary can take over and every entry is acknowledged."""
        options = self._copy.options
        if options.primary or not options.allow_failback:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(FAILBACK_CHECK_S)
            replica = self._replica
            if replica is None or not replica.primary or not self.progress.adopted:
                continue
            try:
                waits = replica.name in await self._record.waiting()
            except (PalisadeError, TimeoutError):
                continue
            if waits and await self._drained():
                return

    async def _drained(self) -> bool:
        """Stop accepting entries; True once both copies have all of them. False: entries are accepted again."""
        self._closing = True
        for _ in range(round(HAND_OVER_S / TICK_S)):
            in_sync = self.progress.replica is ReplicaState.IN_SYNC and self.progress.adopted
            if in_sync and not self._queue and self.progress.acknowledged == self.progress.appended:
                return True
            await asyncio.sleep(TICK_S)
        self._closing = False
        return False


async def raise_sequence(copy: CopyState, record: RoleRecord, lock: Leadership, seen: Agreed) -> Agreed:
    """Claim, write the local sequence, commit: the three steps of `catalog/activation.py`. Raises LeaseLost."""
    claim = await record.claim(lock, seen)
    if claim.record is not None:
        await copy.adopt(LocalSequence(claim.record.sequence, claim.epoch))
    return await record.commit(lock, claim)


async def first_end_of(*work: Coroutine[Any, Any, None]) -> None:
    """Run all until one ends; the others are cancelled, and its error is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
