"""The store without a disk, for the simulator: flushed data survives `crash`, and snapshots are the real stream."""

from __future__ import annotations

from collections.abc import Iterator

from palisade.base import long_keys
from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import APPLIED_KEY, Table, decode_applied
from palisade.metastore.snapshot import Assembly, Row, Run, StoreSnapshotReader

Content = list[dict[bytes, bytes]]


class MemoryStore(MemoryMap):
    """The interface of `LmdbStore`. `name` distinguishes the snapshots of several stores."""

    def __init__(self, name: str = "memory") -> None:
        super().__init__()
        self._name = name
        self._disk: Content = [{} for _ in Table]
        self._flushes = 0
        self._receiving: tuple[SnapshotMeta, Assembly, Content] | None = None

    @property
    def applied(self) -> tuple[int, int]:
        return decode_applied(self.get(Table.META, APPLIED_KEY))

    @property
    def durable(self) -> tuple[int, int]:
        return decode_applied(self._disk[Table.META].get(APPLIED_KEY))

    async def flush(self) -> None:
        self._disk = self.content()
        self._flushes += 1

    def crash(self) -> None:
        """Lose everything unflushed."""
        self.replace_content(self._disk)

    def close(self) -> None:
        return

    async def open_snapshot(self) -> StoreSnapshotReader:
        await self.flush()
        index, term = self.durable
        meta = SnapshotMeta(f"{index}-{term}-{self._name}-{self._flushes}", index, term, None)
        content = self._disk

        def rows_from(table: Table, start: bytes) -> Iterator[Row]:
            rows = sorted((long_keys.stored_key(key), key, value) for key, value in content[table].items())
            return (row for row in rows if row[0] >= start)

        return StoreSnapshotReader(meta, rows_from, _nothing, _nothing)

    def receive_snapshot(self, meta: SnapshotMeta) -> MemorySnapshotWriter:
        if self._receiving is None or self._receiving[0].id != meta.id:
            self._receiving = (meta, Assembly(meta), [{} for _ in Table])
        return MemorySnapshotWriter(self, *self._receiving[1:], meta)

    def installed(self, content: Content) -> None:
        self._receiving = None
        self._disk = [dict(table) for table in content]
        self._flushes += 1
        self.replace_content(content)
        self.owner.reload()

    def forget_received(self) -> None:
        self._receiving = None


class MemorySnapshotWriter:
    """A `raftgroup.ports.SnapshotWriter` into a MemoryStore."""

    def __init__(self, store: MemoryStore, assembly: Assembly, content: Content, meta: SnapshotMeta) -> None:
        self._store, self._assembly, self._content, self._meta = store, assembly, content, meta

    @property
    def next_chunk(self) -> int:
        return self._assembly.next_chunk

    def write(self, number: int, data: bytes) -> None:
        runs: list[Run] = self._assembly.accept(number, data)
        for table, flat in runs:
            self._content[table].update(zip(flat[::2], flat[1::2], strict=True))

    async def finish(self) -> None:
        try:
            self._assembly.check_whole()
            applied = decode_applied(self._content[Table.META].get(APPLIED_KEY))
            if sum(map(len, self._content)) != self._assembly.rows or applied != (self._meta.index, self._meta.term):
                raise SnapshotInvalid(f"the content of the snapshot {self._meta.id} differs from its announcement")
        except SnapshotInvalid:
            self.abort()
            raise
        self._store.installed(self._content)

    def abort(self) -> None:
        self._store.forget_received()

    def close(self) -> None:
        return


def _nothing() -> None:
    return
