"""The state machine that the group replicates: the metadata store over the store on disk, with snapshots.

`MetaStore` decides, `LmdbStore` stores; here they become one `raftgroup.ports.StateMachine`.
"""

from __future__ import annotations

from palisade.base.snapshots import SnapshotMeta, SnapshotReader, SnapshotWriter
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.state_machine import MetaStore


class StoreMachine:
    """`store` is over `disk`, which persists what `store` applies."""

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
        return await self._disk.open_snapshot()

    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotWriter:
        return self._disk.receive_snapshot(meta)
