"""The data that a restore creates from a backup: a store with its state, checked row by row, in a new generation, and a
log that begins after it.

Works on any store and any journal: `restore.py` provides folders, the simulator its disks. The data must not be used
before the last call has returned, and not at all if one of them raises.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta, SnapshotWriter
from palisade.metastore.backup import BackupEnd, BackupHeader, BackupParser, check_header
from palisade.metastore.lineage import GENERATION_MAX
from palisade.metastore.ordered_map import OrderedMap
from palisade.metastore.restore_edits import begin_restored
from palisade.metastore.state import StoreState
from palisade.metastore.store_errors import BackupInvalid
from palisade.metastore.system_records import SystemRecords
from palisade.node.data_dir_marker import FolderError
from palisade.node.fencing.inherited_leases import waiting_for_former
from palisade.raftgroup.journal_identity import keep_restored, open_storage
from palisade.raftgroup.ports import Journal, Random
from palisade.topology.restored_nodes import without_addresses

Progress = Callable[[int, int | None], None]


class EmptyStore(OrderedMap, Protocol):
    def receive_snapshot(self, meta: SnapshotMeta) -> SnapshotWriter: ...
    async def flush(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Restored:
    """`generation`: of the history that begins with it."""

    header: BackupHeader
    end: BackupEnd
    generation: int

    @property
    def applied(self) -> tuple[int, int]:
        """(index, term) of the last entry that the state contains."""
        return self.header.index, self.header.term

    @property
    def origin(self) -> str:
        """Names the backup: nodes that are founded together compare it to detect that they come from the same one."""
        return f"backup {self.end.digest.hex()[:16]} of revision {self.header.revision}"


async def restore_store(
    store: EmptyStore,
    parts: Iterable[bytes],
    name: str,
    generation_of: Callable[[BackupHeader], int],
    progress: Progress = lambda done, of: None,
) -> Restored:
    """`parts`: the bytes of the backup `name`. Raises BackupInvalid, StoreFailed, and the errors of `generation_of`."""
    header, end = await _fill(store, parts, name, generation_of, progress)
    check_header(header, StoreState(store), name)
    generation = generation_of(header)
    begin_restored(store, generation)
    records = SystemRecords(store, StoreState(store))
    records.write(waiting_for_former(records, generation))
    for write in without_addresses(records):
        records.write(write)
    await store.flush()
    return Restored(header, end, generation)


async def begin_log(journal: Journal, cluster: str, node: str, restored: Restored, chance: Random) -> None:
    """A log that begins after the restored state, in an empty journal. On disk when this returns."""
    open_storage(journal, cluster, node, chance)
    keep_restored(journal, restored.applied, restored.generation, restored.origin)
    await journal.sync()


def generation_after(header: BackupHeader, wanted: int | None = None) -> int:
    """`wanted`, or one more than that of the backup. Raises FolderError if it is out of range or not newer."""
    if wanted is not None and wanted > GENERATION_MAX:
        raise FolderError(f"generation {wanted} is out of range: give one up to {GENERATION_MAX}")
    if wanted is not None and wanted <= header.generation:
        raise FolderError(
            f"generation {wanted} is not newer than that of the backup, {header.generation}: give a greater one, "
            "greater than any that the cluster has had since"
        )
    return wanted or header.generation + 1


async def _fill(
    store: EmptyStore,
    parts: Iterable[bytes],
    name: str,
    generation_of: Callable[[BackupHeader], int],
    progress: Progress,
) -> tuple[BackupHeader, BackupEnd]:
    parser = BackupParser(name)
    header: BackupHeader | None = None
    writer: SnapshotWriter | None = None
    done = number = 0
    for data in parts:
        for found in parser.feed(data):
            if isinstance(found, BackupHeader):
                header = found
                generation_of(header)
                writer = store.receive_snapshot(header.snapshot_meta)
            elif isinstance(found, bytes) and writer is not None:
                _write(writer, number, found, name)
                number += 1
                await asyncio.sleep(0)
        done += len(data)
        progress(done, header.size_bytes if header else None)
    end = parser.finish()
    if header is None or writer is None:
        raise BackupInvalid(f"{name} has no header: take another backup")
    try:
        await writer.finish()
    except SnapshotInvalid as error:
        raise BackupInvalid(f"{name} is incomplete: {error}") from error
    return header, end


def _write(writer: SnapshotWriter, number: int, piece: bytes, name: str) -> None:
    try:
        writer.write(number, piece)
    except SnapshotInvalid as error:
        raise BackupInvalid(f"{name}: {error}; take another backup, or another copy of this one") from error
