"""A snapshot that a simulated store receives, with the disk behaviour of `metastore/snapshot_writer.py`.

Pieces are committed a few at a time, in the background; a start resumes with what was committed, and nothing else. When
the snapshot is complete the rest is committed, then marked complete, then it becomes the store: each takes a sync,
which a full disk refuses, except the last, which is a rename. A process that dies in one of them finds it done, or not.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta
from palisade.metastore.memory_store import Content
from palisade.metastore.ordered_map import APPLIED_KEY, Table, decode_applied
from palisade.metastore.snapshot import Assembly
from palisade.metastore.store_errors import StoreFailed

if TYPE_CHECKING:
    from tests.sim.disk import SimStore

COMMIT_PIECES = 2
POLL_S = 0.002


@dataclass(frozen=True, slots=True)
class Received:
    """`state`: the progress of the stream, as `Assembly` keeps it."""

    state: list[Any]
    content: Content


class SimSnapshotWriter:
    """A `raftgroup.ports.SnapshotWriter` of a `SimStore`. Raises SnapshotInvalid, StoreFailed."""

    def __init__(self, store: SimStore, meta: SnapshotMeta) -> None:
        self._store, self._home, self._meta = store, store.home, meta
        known = self._home.received
        if known is not None and known.state[0] != meta.id:
            known = self._home.received = None
        self._assembly = Assembly(meta, known.state if known is not None else None)
        self._content: Content = [dict(table) for table in known.content] if known else [{} for _ in Table]
        self._uncommitted = 0
        self._commit: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def next_chunk(self) -> int:
        return self._assembly.next_chunk

    def write(self, number: int, data: bytes) -> None:
        self._check_open()
        before = self._assembly.next_chunk
        runs = self._assembly.accept(number, data)
        for table, flat in runs:
            self._content[table].update(zip(flat[::2], flat[1::2], strict=True))
        self._uncommitted += self._assembly.next_chunk - before
        self._look_at_commit()
        if self._uncommitted >= COMMIT_PIECES and self._commit is None:
            self._begin_commit()

    async def finish(self) -> None:
        self._check_open()
        try:
            self._assembly.check_whole()
            while self._uncommitted or self._commit is not None:
                self._look_at_commit()
                if self._uncommitted and self._commit is None:
                    self._begin_commit()
                await asyncio.sleep(POLL_S if self._commit is not None else 0)
            self._check_content()
        except SnapshotInvalid:
            self.abort()
            raise
        self._closed = True
        await self._sync()
        await self._store.replace_by(self._content)

    def abort(self) -> None:
        if not self._closed:
            self._closed = True
            self._home.received = None

    def close(self) -> None:
        self._closed = True

    def _begin_commit(self) -> None:
        received = Received(self._assembly.state, [dict(table) for table in self._content])
        self._uncommitted = 0
        self._commit = asyncio.ensure_future(self._write(received))

    async def _write(self, received: Received) -> None:
        self._home.receiving = received
        try:
            await self._sync()
        finally:
            if self._home.receiving is received:
                self._home.receiving = None
        if not self._closed:
            self._home.received = received

    async def _sync(self) -> None:
        try:
            await self._home.sync()
        except OSError as error:
            raise StoreFailed(f"a received snapshot can't be written: {error}") from error

    def _look_at_commit(self) -> None:
        if self._commit is not None and self._commit.done():
            commit, self._commit = self._commit, None
            commit.result()

    def _check_content(self) -> None:
        applied = decode_applied(self._content[Table.META].get(APPLIED_KEY))
        if sum(map(len, self._content)) != self._assembly.rows or applied != (self._meta.index, self._meta.term):
            raise SnapshotInvalid(f"the snapshot {self._meta.id} differs from its announcement")

    def _check_open(self) -> None:
        if self._closed:
            raise StoreFailed(f"the snapshot {self._meta.id} is no longer being received")
