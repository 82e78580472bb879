"""A backup becomes the data folder of a new cluster: whole, on disk and with a new generation, or not at all.

Everything is built in `<folder>.restoring` beside the folder: the store from the pieces of the backup, checked row by
row; for each node a log that begins behind that state; the markers. Then one rename makes it the folder. A kill at any
moment leaves either no folder or the whole one; what it leaves of the other is removed by the next restore.

Nodes that are restored from the same backup, together or each on its own machine, hold the same state byte for byte,
and are founded together at their first start (`raftgroup/bootstrap.py`), which refuses one from another backup.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from metastore.backup import BackupEnd, BackupHeader, BackupParser, check_header
from metastore.restored import begin_restored
from metastore.snapshot_writer import StoreSnapshotWriter
from metastore.state import State
from metastore.store import LmdbStore
from metastore.store_errors import BackupInvalid, SnapshotInvalid
from node.config import check_id
from node.data_dir import claim_data_dir
from node.folder import FolderError, Marker
from node.supervisor.layout import Layout
from raftgroup.directory_lock import DirectoryLock, sync_directory
from raftgroup.lmdb_journal import LmdbJournal
from raftgroup.storage import keep_restored, open_storage

GENERATION_MAX = 2**53
"""Whoever reads it as JSON reads it whole."""
UNFINISHED = "UNFINISHED"
"""In the folder beside: it is ours, and may be removed."""
CLUSTER_MARKER = "cluster.json"
Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """`node`: make the folder of this one node; None: the folder of `palisade up` with `nodes` nodes.

    None for `cluster`: the name that the backup has; for `generation`: one more than the backup's.
    """

    data_dir: Path
    node: str | None = None
    nodes: int = 3
    base_port: int = 7400
    cluster: str | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What the new cluster begins with. `folders`: node -> its data folder."""

    header: BackupHeader
    end: BackupEnd
    cluster: str
    generation: int
    folders: dict[str, Path]


async def restore(parts: Iterable[bytes], name: str, request: RestoreRequest, progress: Progress) -> RestoreReport:
    """`parts` are the bytes of the backup `name`. Raises BackupInvalid, FolderError, ConfigError, StoreFailed; there is
    no folder then."""
    target = request.data_dir.absolute()
    check_free(target)
    if request.node is not None:
        check_id("id", request.node)
    with Workshop(target) as workshop:
        restoring = _Restoring(parts, name, request, progress, workshop.content)
        try:
            report = await restoring.run()
        except OSError as error:
            said = error.strerror or str(error)
            raise FolderError(f"{target} can't be made: {said}; make room, or give another folder") from error
        sync_tree(workshop.content)
        workshop.deliver()
    return report


class _Restoring:
    def __init__(
        self, parts: Iterable[bytes], name: str, request: RestoreRequest, progress: Progress, content: Path
    ) -> None:
        self._parts, self._name, self._request, self._progress = parts, name, request, progress
        self._content = content
        self._staged = content.parent / "store"

    async def run(self) -> RestoreReport:
        store = LmdbStore(self._staged)
        try:
            header, end = await self._fill(store)
            check_header(header, State(store), self._name)
            generation = self._generation(header)
            begin_restored(store, generation)
            await store.flush()
        finally:
            store.close()
        cluster = self._request.cluster or header.cluster
        folders = self._folders(cluster)
        origin = f"backup {end.digest.hex()[:16]} of revision {header.revision}"
        for number, (node, folder) in enumerate(folders.items()):
            claim_data_dir(folder, cluster=cluster, node=node)
            last = number == len(folders) - 1
            (os.rename if last else shutil.copytree)(self._staged, folder / "store")
            await begin_log(folder / "raft", cluster, node, (header.index, header.term), generation, origin)
        target = self._request.data_dir.absolute()
        final = {node: target / folder.relative_to(self._content) for node, folder in folders.items()}
        return RestoreReport(header, end, cluster, generation, final)

    async def _fill(self, store: LmdbStore) -> tuple[BackupHeader, BackupEnd]:
        parser = BackupParser(self._name)
        header: BackupHeader | None = None
        writer: StoreSnapshotWriter | None = None
        done = number = 0
        for data in self._parts:
            for found in parser.feed(data):
                if isinstance(found, BackupHeader):
                    header = found
                    self._generation(header)
                    check_id("cluster", self._request.cluster or header.cluster)
                    writer = store.receive_snapshot(header.snapshot_meta)
                elif isinstance(found, bytes) and writer is not None:
                    self._write(writer, number, found)
                    number += 1
                    await asyncio.sleep(0)
            done += len(data)
            self._progress(done, header.size_bytes if header else None)
        end = parser.finish()
        if header is None or writer is None:
            raise BackupInvalid(f"{self._name} has no header: take another backup")
        try:
            await writer.finish()
        except SnapshotInvalid as error:
            raise BackupInvalid(f"{self._name} is not whole: {error}") from error
        return header, end

    def _write(self, writer: StoreSnapshotWriter, number: int, piece: bytes) -> None:
        try:
            writer.write(number, piece)
        except SnapshotInvalid as error:
            raise BackupInvalid(f"{self._name}: {error}; take another backup, or another copy of this one") from error

    def _generation(self, header: BackupHeader) -> int:
        wanted = self._request.generation
        if wanted is not None and wanted > GENERATION_MAX:
            raise FolderError(f"generation {wanted} is out of range: give one up to {GENERATION_MAX}")
        if wanted is not None and wanted <= header.generation:
            raise FolderError(
                f"generation {wanted} is not newer than that of the backup, {header.generation}: give a greater one, "
                "greater than any that the cluster has had since"
            )
        return wanted or header.generation + 1

    def _folders(self, cluster: str) -> dict[str, Path]:
        """Node -> where its data are built; the marker of the whole is there afterwards."""
        self._content.mkdir()
        if self._request.node is not None:
            return {self._request.node: self._content}
        layout = Layout(cluster, self._request.nodes, self._request.base_port)
        Marker(self._content, CLUSTER_MARKER).write(layout.to_json())
        return {member.id: self._content / member.id / "data" for member in layout.members()}


async def begin_log(
    path: Path, cluster: str, node: str, applied: tuple[int, int], generation: int, origin: str
) -> None:
    """A log that begins behind the restored state, of a storage that nobody knows yet."""
    journal = LmdbJournal(path)
    try:
        open_storage(journal, cluster, node, random.SystemRandom())
        keep_restored(journal, applied, generation, origin)
        await journal.sync()
    finally:
        journal.close()


def check_free(target: Path) -> None:
    """Raises FolderError unless there is nothing at `target`, or an empty folder."""
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FolderError(f"{target} is not empty: nothing is restored over something else; give a new folder")
    except OSError as error:
        raise FolderError(f"{target} can't be used: {error.strerror}; give another folder") from None


class Workshop:
    """`<target>.restoring`, locked and emptied; `content` in it is what `deliver` makes the target."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(f"{target.name}.restoring")
        self.content = self._path / "content"

    def __enter__(self) -> Workshop:
        self._lock = DirectoryLock(self._path)
        try:
            found = {entry.name for entry in self._path.iterdir()} - {"LOCK"}
            if found and UNFINISHED not in found:
                raise FolderError(f"{self._path} is needed to restore and holds something else: move that away")
            self._empty(found - {UNFINISHED})
            (self._path / UNFINISHED).touch()
            sync_directory(self._path)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise FolderError(f"{self._path} can't be used: {error.strerror}; give another folder") from None
            raise
        return self

    def deliver(self) -> None:
        """On disk when this returns. Raises FolderError, and the target is as it was."""
        try:
            self.content.rename(self._target)
            sync_directory(self._target.parent)
        except OSError as error:
            raise FolderError(
                f"what was restored can't be moved to {self._target}: {error.strerror}; give a folder that does not "
                "exist yet and is no mount point"
            ) from None

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
        self._lock.release()

    def _empty(self, names: Iterable[str]) -> None:
        for name in names:
            entry = self._path / name
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()


def sync_tree(path: Path) -> None:
    """Everything below, and what is called what. Raises FolderError."""
    try:
        for folder, _, files in os.walk(path, topdown=False):
            for each in files:
                with open(Path(folder, each), "rb") as file:
                    os.fsync(file.fileno())
            sync_directory(Path(folder))
    except OSError as error:
        raise FolderError(f"what was restored is not on disk: {error.strerror}; give another folder") from None
