"""Every writer that promises durability keeps the promise: what it wrote survives a loss of power right after the call.

A name that is not synced is lost together with everything below it, so the names of new directories count as well. And
nothing gets a name before it is on the disk.
"""

from __future__ import annotations

from asyncio import Runner
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from palisade.base.durable_files import make_directory, replace_file, sync_tree
from palisade.catalog.activation import LocalSequence
from palisade.catalog.forced_activation import CopyReport, Operator, forced
from palisade.cli.activation_copies import HeldCopy
from palisade.cli.login import write_private
from palisade.cli.vault import write_rows
from palisade.journal import local_file
from palisade.journal.files import DiskFiles
from palisade.journal.local_file import LocalState
from palisade.metastore.backup import BackupEncoder, header_of
from palisade.metastore.lineage import Lineage
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import FoundCluster, Put
from palisade.node import backup_file
from palisade.node.backup_file import BackupFile
from palisade.node.data_dir import claim_data_dir, keep_participant
from palisade.node.restore import RestoreRequest, StagingFolder, restore
from palisade.pipeline import archive_folder
from palisade.pipeline.archive_folder import ArchiveFolder
from palisade.pipeline.archive_manifest import ArchiveManifest
from palisade.pipeline.ingest import check_reached
from palisade.pipeline.segment_folder import folder_of, write_file
from palisade.pipeline.segment_writing import WrittenFile
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.recovery.report import RecoveryRecorder
from palisade.recovery.report_file import keep_report
from palisade.segments.disk import FolderDisk
from palisade.segments.names import Wanted
from palisade.segments.realtime_folder import DiskFolder
from palisade.segments.segment_store import SegmentStore
from palisade.topology.initialization import Participant
from palisade.vault.directory import VaultDirectory
from palisade.vault.opening import open_vault
from tests.support.meta_driver import Driver
from tests.support.recorded_disk import RecordedDisk
from tests.support.segment_names import name

Moments = Iterator[tuple[str, ...] | None]
Writer = Callable[[Path], Moments]
"""Writes below a directory that is on the disk. At each of its moments, everything that it has written has to be there,
except for what it names."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordedDisk]:
    (tmp_path / "root").mkdir()
    found = RecordedDisk(tmp_path / "root", monkeypatch)
    yield found
    found.close()


# Files and directories.


def new_directories(root: Path) -> Moments:
    for _ in range(2):
        make_directory(root / "a" / "b")
        yield
    make_directory(root / "a" / "c")
    yield


def replaced_file(root: Path) -> Moments:
    for content in (b"old", b"new"):
        replace_file(root / "file", content, root / "file.partial")
        yield


def tree(root: Path) -> Moments:
    make_directory(root / "a")
    (root / "a" / "b").mkdir()
    (root / "a" / "b" / "file").write_bytes(b"content")
    sync_tree(root / "a")
    yield


# Commands.


def backup(root: Path) -> Moments:
    file = BackupFile(root / "b")
    file.begin()
    file.write(b"content")
    file.finish(lambda done, total: None)
    yield


def export(root: Path) -> Moments:
    write_rows(iter([{"key": "a"}]), str(root / "rows"), lambda keys: None)
    yield


def token(root: Path) -> Moments:
    """A file without its content would also destroy the token of an earlier login."""
    for text in ("old", "new"):
        write_private(root / "token", text)
        yield


# The data folder of a node.


def marker(root: Path) -> Moments:
    claim_data_dir(root / "new" / "n1", cluster="demo", node="n1")
    yield
    keep_participant(root / "new" / "n1", Participant())
    yield


def journal(root: Path) -> Moments:
    opened = LmdbJournal(root / "new" / "raft")
    yield
    opened.close()


def store(root: Path) -> Moments:
    opened = LmdbStore(root / "new" / "store")
    yield
    opened.close()


def recovery_report(root: Path) -> Moments:
    for _ in range(2):
        keep_report(root)(RecoveryRecorder("n1", lambda: 0.0).report)
        yield


def restored_data(root: Path) -> Moments:
    """From a backup: the old cluster may be gone."""
    source = MemoryStore("source")
    Driver(source).do(FoundCluster("c1"))
    with Runner() as runner:
        reader, encoder = runner.run(source.open_snapshot()), BackupEncoder()
        parts = [encoder.begin(header_of(reader, cluster="demo", created_by="0.1.0", created_ms=1))]
        while (piece := reader.chunk(len(parts) - 1)) is not None:
            parts.append(encoder.piece(piece))
        request = RestoreRequest(root / "new" / "d", nodes=2, base_port=8400)
        runner.run(restore([*parts, encoder.end()], "b", request, lambda done, total: None))
        yield ("removal of d.restoring",)


def begun_restore(root: Path) -> Moments:
    """The next restore removes only what has the mark."""
    with StagingFolder(root / "new" / "d"):
        yield


LEFTOVERS = ("removal of complete", "removal of previous")
"""A start removes them."""


def received_snapshot(root: Path) -> Moments:
    """The state of a member is replaced: once the log begins after it, no other copy is left."""
    source = Driver(LmdbStore(root.parent / "source"))
    source.do(Put(b"a", b"1"))
    with Runner() as runner:
        reader = runner.run(source.tables.open_snapshot())  # type: ignore[attr-defined]
        target = LmdbStore(root / "store")
        writer = target.receive_snapshot(reader.meta)
        while (piece := reader.chunk(writer.next_chunk)) is not None:
            writer.write(writer.next_chunk, piece)
        runner.run(writer.finish())
        yield LEFTOVERS
        target.close()
        reader.close()
        source.tables.close()  # type: ignore[attr-defined]


def vault_mark(root: Path) -> Moments:
    """Without the mark, the next start would take a torn vault for a sound one."""
    directory = VaultDirectory(root / "new" / "vault", "boot")
    directory.claim()
    directory.mark_unsynced()
    yield
    directory.mark_synced()
    yield
    directory.release()


def vault_put_aside(root: Path) -> Moments:
    open_vault(root / "new" / "vault").close()
    VaultDirectory(root / "new" / "vault").put_aside()
    yield


# The copies of a role.


def role_files(root: Path) -> Moments:
    files = DiskFiles(root / "new" / "role")
    with Runner() as runner:
        for name in ("1", "2"):
            runner.run(files.create(name, b"head"))
            yield
        files.write("1", b"entry")
        runner.run(files.sync("1"))
        yield
        runner.run(files.truncate("1", 5))
        yield
        for content in (b"old", b"new"):
            runner.run(files.replace("state", content))
            yield
        runner.run(files.remove("2"))
        yield
    files.close()


def forced_activation(root: Path) -> Moments:
    (root / "copy").mkdir()
    state = LocalState("meta", LocalSequence(3, 1))
    (root / "copy" / local_file.NAME).write_bytes(local_file.encode(state))
    report = CopyReport("here", LocalSequence(3, 1))
    with HeldCopy("meta", root / "copy") as held:
        sync_tree(root)
        held.write(LocalSequence(4, 1))
        yield
        held.keep_pending(forced("meta", "a", report, [], None, Operator("root", 5)))
        yield
        held.remove_pending()
        yield


# Segments.

NAME = name(1)
WANTED = Wanted("sha256:" + "1" * 64, 7)


def only_copy_of_a_segment(root: Path) -> Moments:
    """A realtime segment that its ingester has published: the log of its rows is removed then."""
    segments = SegmentStore(FolderDisk(root / "new" / "segments"))
    with Runner() as runner:
        for content in (b"content", b"changed"):
            runner.run(segments.put(NAME, WANTED, content, synced=True))
            yield


def realtime_logs(root: Path) -> Moments:
    folder = DiskFolder(root / "new" / "realtime")
    with Runner() as runner:
        files = folder.files("a")
        yield
        runner.run(files.create("1", b"head"))
        yield
        files.close()
        runner.run(folder.remove("a"))
        yield


def archive(root: Path) -> Moments:
    folder = ArchiveFolder(root / "new" / "archive")
    folder.prepare()
    yield
    (folder.path / "changes" / "1").mkdir()
    (folder.path / "changes" / "1" / "part").write_bytes(b"rows")
    folder.finish("changes/1")
    yield
    for number in (1, 2):
        assert folder.publish(ArchiveManifest("a", Lineage("c", 1), number, 5))
        yield
    folder.remove((), (1,))
    yield


def ingested_files(root: Path) -> Moments:
    """The folder exists, as all workers share it."""
    folder = folder_of(str(root), "cluster", "flights")
    url = write_file(folder.run(7), "a.parquet", b"rows")
    check_reached(folder, [WrittenFile(1, 0, 1, 1, 4, "sha256:1", url)])
    yield


WRITERS: tuple[Writer, ...] = (
    new_directories, replaced_file, tree, backup, export, token, marker, journal, store, recovery_report,
    restored_data, begun_restore, received_snapshot, vault_mark, vault_put_aside, role_files, forced_activation,
    only_copy_of_a_segment, realtime_logs, archive, ingested_files,
)  # fmt: skip


@pytest.mark.parametrize("writer", WRITERS, ids=lambda writer: writer.__name__)
def test_writer_of_files_loses_nothing_with_the_power(
    writer: Writer, disk: RecordedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_file, "verify_file", lambda path, progress: None)
    moments = 0
    for except_for in writer(disk.root):
        assert disk.lost() == list(except_for or ())
        moments += 1
    assert moments
    assert disk.faults == []


def test_archive_removes_no_folder_before_the_manifests_that_name_it_are_gone(
    disk: RecordedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a loss of power would bring back a manifest without its rows."""
    folder = ArchiveFolder(disk.root / "archive")
    folder.prepare()
    folder.publish(ArchiveManifest("a", Lineage("c", 1), 1, 5))
    (folder.path / "changes" / "1").mkdir()
    at_removal: list[list[str]] = []
    monkeypatch.setattr(archive_folder.shutil, "rmtree", lambda path, **_: at_removal.append(disk.lost()))
    folder.remove(("changes/1",), (1,))
    assert at_removal == [["name of 1"]]
