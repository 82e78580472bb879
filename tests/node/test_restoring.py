"""A backup becomes a complete data folder or none; hostile files are refused (issue 3, "Bad input")."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import pytest

from palisade.base.errors import ConfigError
from palisade.fencing.release import Registration, Releases
from palisade.fencing.timing import FenceTiming
from palisade.metastore.backup import BackupEncoder, header_of
from palisade.metastore.digest_check import verify
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import FoundCluster, LeaseGrant, Put, Range, SystemWrite
from palisade.metastore.state_machine import MetaStore
from palisade.metastore.store_errors import BackupInvalid
from palisade.node.backup_file import BackupFile, BackupFileError, verify_file
from palisade.node.data_dir_marker import FolderError
from palisade.node.fencing.holder_registry import registrations
from palisade.node.restore import RestoreReport, RestoreRequest, StagingFolder, restore
from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.topology.known_nodes import known_seeds
from palisade.topology.records import NodeRecord, NodeRole, NodeStanding
from palisade.topology.view import nodes_of
from tests.support.meta_driver import Driver


def backup_of(disk: MemoryStore) -> bytes:
    reader = asyncio.run(disk.open_snapshot())
    encoder = BackupEncoder()
    parts = [encoder.begin(header_of(reader, cluster="demo", created_by="0.1.0", created_ms=1))]
    number = 0
    while (piece := reader.chunk(number)) is not None:
        parts.append(encoder.piece(piece))
        number += 1
    return b"".join([*parts, encoder.end()])


@pytest.fixture(scope="module")
def source() -> Driver:
    driver = Driver(MemoryStore("source"))
    driver.do(FoundCluster("c1"))
    driver.do(LeaseGrant(60_000, 7))
    for number in range(25):
        driver.do(Put(b"key/%d" % number, b"%d" % number * 9000, lease=7 if number == 3 else 0))
    driver.do(Put(b"key/1", b"again"))
    return driver


@pytest.fixture(scope="module")
def backup(source: Driver) -> bytes:
    return backup_of(source.tables)  # type: ignore[arg-type]


def parts_of(data: bytes, size: int = 100_000) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def run(parts: Iterable[bytes], request: RestoreRequest) -> RestoreReport:
    return asyncio.run(restore(parts, "b.backup", request, lambda done, total: None))


def nothing_is_left(folder: Path) -> bool:
    return list(folder.parent.iterdir()) == []


def test_each_node_has_the_state_in_the_next_generation(backup: bytes, source: Driver, tmp_path: Path) -> None:
    report = run(parts_of(backup), RestoreRequest(tmp_path / "d", nodes=2, base_port=8400))
    assert json.loads((tmp_path / "d/cluster.json").read_text()) == {
        "format": 1, "cluster": "demo", "nodes": 2, "base_port": 8400,
    }  # fmt: skip
    assert report.generation == 2

    async def look(folder: Path) -> None:
        disk = LmdbStore(folder / "store")
        store = MetaStore(disk)
        assert store.digest() == source.store.digest()
        assert store.range(Range(b"\0", b"\0")) == source.store.range(Range(b"\0", b"\0"))
        assert (store.lineage.cluster_id, store.lineage.generation) == ("c1", 2)
        assert (store.lease_info(7).ttl_s, store.lease_info(7).keys) == (60, (b"key/3",))
        assert list(verify(disk)) == []
        journal = LmdbJournal(folder / "raft")
        assert (journal.last.index, journal.last.term) == store.applied == journal.first[1:]
        journal.close()
        disk.close()

    for node, folder in report.folders.items():
        assert json.loads((folder / "node.json").read_text())["node"] == node
        asyncio.run(look(folder))
    assert [each.name for each in tmp_path.iterdir()] == ["d"]


def test_first_leader_waits_for_leases_unknown_to_the_backup(backup: bytes, tmp_path: Path) -> None:
    """Of any holder that was registered after the backup was taken (F3)."""
    report = run(parts_of(backup), RestoreRequest(tmp_path / "d", node="n1"))

    async def known(folder: Path) -> list[Registration]:
        disk = LmdbStore(folder / "store")
        try:
            return registrations(MetaStore(disk).system)
        finally:
            disk.close()

    (former,) = asyncio.run(known(report.folders["n1"]))
    assert (former.node, former.fences, former.lease_s) == ("(before generation 2)", True, FenceTiming().fence_s)
    core = Releases(FenceTiming())
    core.begin_term(1, 100.0, [former], 26)
    assert core.advance(100.0 + FenceTiming().proceed_s() - 0.01) is None
    assert core.advance(100.0 + FenceTiming().proceed_s()) == 26


def test_restored_nodes_do_not_know_the_addresses_of_the_original_cluster(tmp_path: Path) -> None:
    """They called the original nodes, which run under the same names, and refused to start (issue 16)."""
    driver = Driver(MemoryStore("source"))
    driver.do(FoundCluster("c1"))
    addresses = {"swim": "10.0.0.1:7701", "http": "10.0.0.1:7401"}
    for number in range(70):
        node = NodeRecord(f"n{number}", NodeRole.VOTER, NodeStanding.ACTIVE, "i", 1, 5, addresses)
        driver.do(SystemWrite((), ((node.key, node.to_bytes()),)))
    report = run([backup_of(driver.tables)], RestoreRequest(tmp_path / "d", node="n1"))  # type: ignore[arg-type]

    async def known(folder: Path) -> list[NodeRecord]:
        disk = LmdbStore(folder / "store")
        try:
            return nodes_of(MetaStore(disk).system)
        finally:
            disk.close()

    nodes = asyncio.run(known(report.folders["n1"]))
    assert (len(nodes), known_seeds(nodes)) == (70, [])
    assert {(each.incarnation, each.standing) for each in nodes} == {(5, NodeStanding.ACTIVE)}


def test_each_restored_node_has_a_new_storage_id(backup: bytes, tmp_path: Path) -> None:
    report = run(parts_of(backup), RestoreRequest(tmp_path / "d", nodes=3))

    async def incarnation(folder: Path) -> bytes | None:
        journal = LmdbJournal(folder / "raft")
        try:
            return journal.get_meta("incarnation")
        finally:
            journal.close()

    assert len({asyncio.run(incarnation(folder)) for folder in report.folders.values()}) == 3


def test_restore_accepts_an_empty_folder_and_other_names(backup: bytes, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    report = run(parts_of(backup), RestoreRequest(tmp_path / "d", node="n9", cluster="copy", generation=40))
    assert (report.cluster, report.generation) == ("copy", 40)
    assert json.loads((tmp_path / "d/node.json").read_text()) == {"format": 1, "cluster": "copy", "node": "n9"}


@pytest.mark.parametrize(
    ("request_", "text", "kind"),
    [
        ({"node": "not a name"}, "is not a name", ConfigError),
        ({"node": "n1", "cluster": "a b"}, "is not a name", ConfigError),
        ({"node": "n1", "generation": 1}, "not newer", FolderError),
        ({"nodes": 10}, "out of range", ConfigError),
    ],
)
def test_invalid_restore_is_refused_and_leaves_nothing(
    backup: bytes, tmp_path: Path, request_: dict[str, object], text: str, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match=text):
        run(parts_of(backup), RestoreRequest(tmp_path / "d", **request_))  # type: ignore[arg-type]
    assert nothing_is_left(tmp_path / "d")


def test_restore_leaves_a_folder_with_content_unchanged(backup: bytes, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/precious").write_text("x")
    with pytest.raises(FolderError, match="not empty"):
        run(parts_of(backup), RestoreRequest(tmp_path / "d", node="n1"))
    (tmp_path / "e.restoring").mkdir()
    (tmp_path / "e.restoring/precious").write_text("x")
    with pytest.raises(FolderError, match="has other content"):
        run(parts_of(backup), RestoreRequest(tmp_path / "e", node="n1"))
    assert (tmp_path / "d/precious").exists()
    assert (tmp_path / "e.restoring/precious").exists()


def test_concurrent_restore_of_one_folder_is_refused(backup: bytes, tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield backup[:1000]
        with pytest.raises(DataDirectoryError, match="in use"):
            StagingFolder(tmp_path / "d").__enter__()
        yield backup[1000:]

    run(parts(), RestoreRequest(tmp_path / "d", node="n1"))


def test_restore_removes_the_remains_of_a_killed_one(backup: bytes, tmp_path: Path) -> None:
    beside = tmp_path / "d.restoring"
    (beside / "content/raft").mkdir(parents=True)
    (beside / "UNFINISHED").touch()
    (beside / "content/node.json").write_text("{}")
    (beside / "store").symlink_to(tmp_path)
    run(parts_of(backup), RestoreRequest(tmp_path / "d", node="n1"))
    assert [each.name for each in tmp_path.iterdir()] == ["d"]


def test_truncated_or_changed_backup_is_refused(backup: bytes, tmp_path: Path) -> None:
    """As for `--verify` (tests/metastore/test_backup.py), but into a store on disk."""
    random = Random(3)
    for _ in range(40):
        at = random.randrange(len(backup))
        flipped = bytearray(backup)
        flipped[at] ^= 1 << random.randrange(8)
        for wrong in (backup[:at], bytes(flipped)):
            with pytest.raises(BackupInvalid):
                run(parts_of(wrong), RestoreRequest(tmp_path / "d", node="n1"))
            assert nothing_is_left(tmp_path / "d")


def test_backup_file_gets_its_name_once_it_is_complete(backup: bytes, tmp_path: Path) -> None:
    path = tmp_path / "b.backup"
    file = BackupFile(path)
    with pytest.raises(BackupFileError, match="another backup is being written"):
        BackupFile(path)
    file.begin()
    file.write(b"of an earlier try")
    file.begin()
    file.write(backup[:-1])
    with pytest.raises(BackupInvalid, match="cut off"):
        file.finish(lambda done, total: None)
    assert not path.exists()
    file.write(backup[-1:])
    header, end = file.finish(lambda done, total: None)
    assert [each.name for each in tmp_path.iterdir()] == ["b.backup"]
    assert verify_file(path, lambda done, total: None) == (header, end)
    with pytest.raises(BackupFileError, match="exists already"):
        BackupFile(path)
    BackupFile(path, overwrite=True).discard()
    assert [each.name for each in tmp_path.iterdir()] == ["b.backup"]


def test_unusable_path_is_named_in_the_error(tmp_path: Path) -> None:
    with pytest.raises(BackupFileError, match=r"there is no folder .*none: create it, or give another file"):
        BackupFile(tmp_path / "none/b.backup")
    with pytest.raises(BackupFileError, match="can't be read"):
        verify_file(tmp_path / "none", lambda done, total: None)
