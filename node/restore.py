"""Turns a backup into the data folder of a new cluster: complete, on disk and with a new generation, or not at all.

Everything is built in `<folder>.restoring` beside the folder: the store, for each node a log that begins after the
state of the store (`restore_data_dir.py`), the markers. Then one rename makes it the folder. After a kill there is
either no folder or the complete one; the next restore removes the remains of `<folder>.restoring`.

Nodes that are restored from the same backup, together or each on its own machine, hold the same state byte for byte.
They are founded together at their first start (`raftgroup/founding.py`), which refuses a node from another backup.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from palisade.base.directory_lock import DirectoryLock
from palisade.base.durable_files import publish, sync_directory, sync_tree
from palisade.base.identifier import check_id
from palisade.base.network_reason import reason_of
from palisade.metastore.backup import BackupEnd, BackupHeader
from palisade.metastore.lmdb_store import LmdbStore
from palisade.node.data_dir import claim_data_dir
from palisade.node.data_dir_marker import FolderError, Marker
from palisade.node.local_layout import Layout
from palisade.node.restore_data_dir import Progress, Restored, begin_log, generation_after, restore_store
from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.lmdb_journal import LmdbJournal

UNFINISHED = "UNFINISHED"
"""The mark in `<folder>.restoring`: the folder was made by a restore, and may be removed."""
CLUSTER_MARKER = "cluster.json"
ANY_CLUSTER = "cluster"
"""In place of the name in the backup, which is not read yet."""


@dataclass(frozen=True, slots=True)
class RestoreRequest:
    """`node`: create the folder of this one node; None: the folder of `palisade up` with `nodes` nodes.

    None for `cluster`: the name in the backup; for `generation`: one more than the backup's.
    """

    data_dir: Path
    node: str | None = None
    nodes: int = 3
    base_port: int = 7400
    cluster: str | None = None
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """The start of the new cluster. `folders`: node -> its data folder."""

    header: BackupHeader
    end: BackupEnd
    cluster: str
    generation: int
    folders: dict[str, Path]


async def restore(parts: Iterable[bytes], name: str, request: RestoreRequest, progress: Progress) -> RestoreReport:
    """`parts` are the bytes of the backup `name`. Raises BackupInvalid, FolderError, ConfigError, StoreFailed; then
    there is no folder."""
    check_request(request)
    target = request.data_dir.absolute()
    with StagingFolder(target) as staging:
        restoring = _Restoring(parts, name, request, progress, staging.content)
        try:
            report = await restoring.run()
        except OSError as error:
            reason = reason_of(error)
            raise FolderError(f"{target} can't be created: {reason}; make room, or give another folder") from error
        try:
            sync_tree(staging.content)
        except OSError as error:
            raise FolderError(
                f"the restored data were not written to disk: {reason_of(error)}; give another folder"
            ) from None
        staging.deliver()
    return report


def check_request(request: RestoreRequest) -> None:
    """Everything that is known before the backup is read. Raises FolderError, ConfigError."""
    check_free(request.data_dir.absolute())
    if request.node is not None:
        check_id("id", request.node)
    if request.cluster is not None:
        check_id("cluster", request.cluster)
    if request.node is None:
        Layout(request.cluster or ANY_CLUSTER, request.nodes, request.base_port)


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
            restored = await restore_store(store, self._parts, self._name, self._generation, self._progress)
        finally:
            store.close()
        header = restored.header
        cluster = self._request.cluster or header.cluster
        folders = self._folders(cluster)
        for number, (node, folder) in enumerate(folders.items()):
            claim_data_dir(folder, cluster=cluster, node=node)
            last = number == len(folders) - 1
            (os.rename if last else shutil.copytree)(self._staged, folder / "store")
            await _begin_log(folder / "raft", cluster, node, restored)
        target = self._request.data_dir.absolute()
        final = {node: target / folder.relative_to(self._content) for node, folder in folders.items()}
        return RestoreReport(header, restored.end, cluster, restored.generation, final)

    def _generation(self, header: BackupHeader) -> int:
        check_id("cluster", self._request.cluster or header.cluster)
        return generation_after(header, self._request.generation)

    def _folders(self, cluster: str) -> dict[str, Path]:
        """Node -> where its data are built; the marker of the whole folder exists afterwards."""
        self._content.mkdir()
        if self._request.node is not None:
            return {self._request.node: self._content}
        layout = Layout(cluster, self._request.nodes, self._request.base_port)
        Marker(self._content, CLUSTER_MARKER).write(layout.to_json())
        return {member.id: self._content / member.id / "data" for member in layout.members()}


async def _begin_log(path: Path, cluster: str, node: str, restored: Restored) -> None:
    journal = LmdbJournal(path)
    try:
        await begin_log(journal, cluster, node, restored, random.SystemRandom())
    finally:
        journal.close()


def check_free(target: Path) -> None:
    """Raises FolderError unless `target` does not exist or is an empty folder."""
    try:
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise FolderError(f"{target} is not empty, nothing was restored: give a new folder")
    except OSError as error:
        raise FolderError(f"{target} can't be used: {reason_of(error)}; give another folder") from None


class StagingFolder:
    """`<target>.restoring`, locked and emptied; `deliver` makes its `content` the target."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self._path = target.with_name(f"{target.name}.restoring")
        self.content = self._path / "content"

    def __enter__(self) -> StagingFolder:
        self._lock = DirectoryLock(self._path, DataDirectoryError)
        try:
            found = {entry.name for entry in self._path.iterdir()} - {"LOCK"}
            if found and UNFINISHED not in found:
                raise FolderError(f"{self._path} is needed for the restore and has other content: move that away")
            self._empty(found - {UNFINISHED})
            (self._path / UNFINISHED).touch()
            sync_directory(self._path)
        except BaseException as error:
            self._lock.release()
            if isinstance(error, OSError):
                raise FolderError(f"{self._path} can't be used: {reason_of(error)}; give another folder") from None
            raise
        return self

    def deliver(self) -> None:
        """On disk when this returns. Raises FolderError; then the target is unchanged."""
        try:
            publish(self.content, self._target)
        except OSError as error:
            raise FolderError(
                f"the restored data can't be moved to {self._target}: {reason_of(error)}; give a folder that does not "
                "exist yet and is not a mount point"
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
