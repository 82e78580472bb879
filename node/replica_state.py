"""The state machine that the group replicates: the meta storage over the store on disk, with snapshots.

`MetaStore` decides, `LmdbStore` keeps; here they become one `raftgroup.ports.StateMachine`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import metastore.snapshot as store_snapshot
import metastore.store_errors as store_errors
from metastore.machine import MetaStore
from metastore.snapshot_writer import StoreSnapshotWriter
from metastore.store import LmdbStore
from raftgroup.ports import SnapshotInvalid, SnapshotMeta, SnapshotReader, SnapshotWriter


class ReplicaState:
    """`store` is over `disk`: what it applies is what `disk` keeps."""

    def __init__(self, store: MetaStore, disk: LmdbStore) -> None:
        self._store = store
        self._disk = disk
        self.lead = store.lead
        self.stamp = store.stamp
        self.skip = store.skip
        self.apply = store.apply

    @property
    def applied(self) -> tuple[int, int]:
        return self._store.applied

    @property
    def durable(self) -> tuple[int, int]:
        return self._disk.durable

    async def open_snapshot(self) -> SnapshotReader:
        return _Reader(await self._disk.open_snapshot())

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotWriter:
        return _Writer(self._disk.receive_snapshot(store_snapshot.SnapshotMeta(**asdict(meta))))


@contextmanager
def _invalid() -> Iterator[None]:
    """The store's words for a snapshot that is not whole, or can't be read to its end any more, as the group's."""
    try:
        yield
    except (store_errors.SnapshotInvalid, store_errors.SnapshotGone) as error:
        raise SnapshotInvalid(str(error)) from error


class _Reader:
    def __init__(self, reader: store_snapshot.SnapshotReader) -> None:
        self._reader = reader
        self.meta = SnapshotMeta(**asdict(reader.meta))
        self.close = reader.close

    def chunk(self, number: int) -> bytes | None:
        with _invalid():
            return self._reader.chunk(number)


class _Writer:
    def __init__(self, writer: StoreSnapshotWriter) -> None:
        self._writer = writer
        self.abort = writer.abort

    @property
    def next_chunk(self) -> int:
        return self._writer.next_chunk

    def write(self, number: int, data: bytes) -> None:
        with _invalid():
            self._writer.write(number, data)

    async def finish(self) -> None:
        with _invalid():
            await self._writer.finish()
