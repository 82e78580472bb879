"""The store on disk: guarantees of a flush, the state after a crash, the lock of the directory."""

from __future__ import annotations

import asyncio
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import lmdb
import msgpack
import pytest

from palisade.base.commit_thread import DiskThread
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.flush_policy import FlushPolicy
from palisade.metastore.lmdb_file import LmdbFile
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import APPLIED_KEY, Table, encode_applied
from palisade.metastore.record_check import CHECKSUMS
from palisade.metastore.store_errors import StoreFailed
from tests.support.full_disk import files_no_larger_than
from tests.support.power_loss import during_commit
from tests.support.store_writer import step
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]


def everything(tables: Any) -> list[Any]:
    return [list(tables.scan(table, b"", None)) for table in Table]


def model_after(number: int) -> MemoryMap:
    model = MemoryMap()
    for done in range(1, number + 1):
        step(model, done)
    return model


async def test_applied_and_durable_come_from_the_same_record(tmp_path: Path) -> None:
    """Scenarios, Meta storage: consistent index and data move together (etcd #13766)."""
    store = LmdbStore(tmp_path)
    assert store.applied == store.durable == (0, 0)
    store.put(Table.META, APPLIED_KEY, encode_applied(5, 2))
    assert (store.applied, store.durable) == ((5, 2), (0, 0))
    await store.flush()
    store.put(Table.META, APPLIED_KEY, encode_applied(6, 2))
    assert (store.applied, store.durable) == ((6, 2), (5, 2))
    store.close()
    store = LmdbStore(tmp_path)
    assert store.applied == store.durable == (5, 2)
    store.close()


async def test_flush_contains_exactly_the_writes_before_it_began(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    for number in range(1, 101):
        step(store, number)
    flush = asyncio.ensure_future(store.flush())
    number = 100
    while not flush.done():
        number += 1
        step(store, number)
        await asyncio.sleep(0)
        assert everything(store) == everything(model_after(number)) or number % 10
    durable = store.durable[0]
    assert 100 <= durable < number
    store.close()
    store = LmdbStore(tmp_path)
    assert everything(store) == everything(model_after(durable))
    store.close()


async def test_flush_continues_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    step(store, 1)
    flush = asyncio.ensure_future(store.flush())
    await asyncio.sleep(0.001)
    flush.cancel()
    step(store, 2)
    await store.flush()
    assert store.durable == (2, 1)
    assert everything(store) == everything(model_after(2))
    store.close()


async def test_concurrent_flushes_are_serialized(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)

    async def write(number: int) -> None:
        step(store, number)
        await store.flush()
        assert store.durable[0] >= number

    await asyncio.gather(*(write(number) for number in range(1, 30)))
    assert everything(store) == everything(model_after(29))
    store.close()


async def test_power_failure_during_a_flush_leaves_the_previous_state(tmp_path: Path) -> None:
    rng = random.Random(1)
    data = tmp_path / "store" / "current" / "data.mdb"
    store = LmdbStore(tmp_path / "store")
    for number in range(1, 301):
        step(store, number)
    await store.flush()
    before = data.read_bytes()
    for number in range(301, 500):
        step(store, number)
    await store.flush()
    store.close()
    expected = everything(model_after(300))
    for number, file in enumerate(during_commit(before, data.read_bytes(), rng, 40)):
        current = tmp_path / str(number) / "current"
        current.mkdir(parents=True)
        (current / "data.mdb").write_bytes(file)
        store = LmdbStore(tmp_path / str(number))
        assert everything(store) == expected
        store.close()


def test_kill_9_at_any_moment_leaves_the_state_after_a_step(tmp_path: Path) -> None:
    """M9. No step is partly there, no flushed step is missing."""
    rng = random.Random(2)
    for seed in range(10):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.store_writer", str(tmp_path / "store"), str(seed)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process, process.stdout as lines:  # type: ignore[union-attr]
            flushed = [lines.readline() for _ in range(rng.randrange(1, 10))]
            process.kill()
            flushed += [line for line in lines if line.endswith("\n")]
        store = LmdbStore(tmp_path / "store")
        assert store.applied[0] >= int(flushed[-1])
        assert everything(store) == everything(model_after(store.applied[0]))
        store.close()


async def test_full_disk_stops_the_store_and_loses_nothing(tmp_path: Path) -> None:
    """Scenarios, everywhere: disk full. The log still has what the flush could not write."""
    store = LmdbStore(tmp_path)
    step(store, 1)
    await store.flush()
    step(store, 2)
    store.put(Table.REVISION, b"large", bytes(1 << 20))
    size = (tmp_path / "current" / "data.mdb").stat().st_size
    with files_no_larger_than(size), pytest.raises(StoreFailed, match=r"Nothing acknowledged is lost.*make room"):
        await store.flush()
    assert store.applied == (2, 1)
    assert store.durable == (1, 1)
    assert store.get(Table.REVISION, b"large") == bytes(1 << 20)
    with pytest.raises(StoreFailed, match="has failed: restart the node"):
        await store.flush()
    with pytest.raises(StoreFailed):
        await store.run(lambda: 1e9)
    store.close()
    store = LmdbStore(tmp_path)
    assert everything(store) == everything(model_after(1))
    store.close()


async def test_run_flushes_when_due(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, policy=FlushPolicy(age_s=10.0))
    times = iter((0.0, 5.0, 9.0, 11.0))
    running = asyncio.ensure_future(store.run(lambda: next(times, 11.0)))
    step(store, 1)
    await until(lambda: store.durable == (1, 1))
    assert next(times, None) is None
    running.cancel()
    store.close()


@pytest.mark.parametrize(
    ("entries", "size_bytes", "age_s", "due"),
    [(0, 0, 1e9, False), (1, 1, 1.9, False), (1, 1, 2.0, True), (65_536, 1, 0.0, True), (1, 1 << 24, 0.0, True)],
)
def test_flush_is_due_by_number_size_or_age(entries: int, size_bytes: int, age_s: float, due: bool) -> None:
    assert FlushPolicy().is_due(entries, size_bytes, age_s) is due


async def test_flush_age_counts_from_the_first_unflushed_write(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, policy=FlushPolicy(age_s=10.0))
    assert not store.needs_flush(0.0)
    assert not store.needs_flush(100.0)
    step(store, 1)
    assert not store.needs_flush(101.0)
    assert not store.needs_flush(110.9)
    assert store.needs_flush(111.0)
    await store.flush()
    assert not store.needs_flush(112.0)
    store.close()


async def test_map_grows_during_a_flush(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, map_bytes=1 << 20)
    for number in range(20):
        store.put(Table.REVISION, b"%d" % number, random.Random(number).randbytes(500_000))
        if number % 5 == 4:
            await store.flush()
    assert all(
        store.get(Table.REVISION, b"%d" % number) == random.Random(number).randbytes(500_000) for number in range(20)
    )
    store.close()


async def test_second_process_is_refused(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    script = "import sys; from palisade.metastore.lmdb_store import LmdbStore; LmdbStore(sys.argv[1])"
    second = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), cwd=ROOT, stderr=subprocess.PIPE
    )
    said = (await second.communicate())[1].decode()
    assert "StoreFailed" in said
    assert "in use by another process: stop it first" in said
    store.close()
    store.close()
    LmdbStore(tmp_path).close()


def test_uncreatable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed, match=r"can't be used: not a directory\. Make it writable"):
        LmdbStore(tmp_path / "file" / "store")


@pytest.mark.parametrize("read_only", [False, True])
def test_directory_whose_file_cannot_be_examined_is_refused(tmp_path: Path, read_only: bool) -> None:
    """An OSError left the package, which raises StoreFailed."""
    with pytest.raises(StoreFailed, match=r"can't be used: .*File name too long"):
        LmdbFile(tmp_path / ("x" * 300), read_only=read_only)


@pytest.mark.parametrize("content", [b"x", b"garbage" * 10_000, bytes(8192)])
def test_file_that_is_no_store_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "current").mkdir()
    (tmp_path / "current" / "data.mdb").write_bytes(content)
    with pytest.raises(StoreCorrupt, match="remove its data directory"):
        LmdbStore(tmp_path)
    assert (tmp_path / "current" / "data.mdb").read_bytes() == content


def test_foreign_lmdb_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "current").mkdir()
    with lmdb.open(str(tmp_path / "current"), max_dbs=1) as env, env.begin(write=True) as txn:
        txn.put(b"somebody", b"else's")
    with pytest.raises(StoreCorrupt, match="is not a store: give the node its own data directory"):
        LmdbStore(tmp_path)


@pytest.mark.parametrize(("version", "age"), [(1, "older"), (4, "newer")])
def test_other_format_is_refused(tmp_path: Path, version: int, age: str) -> None:
    LmdbStore(tmp_path).close()
    with lmdb.open(str(tmp_path / "current"), max_dbs=20) as env, env.begin(write=True) as txn:
        value = CHECKSUMS.seal(Table.META, b"format", msgpack.packb(["palisade-store", version, "name"]))
        txn.put(b"format", value, db=env.open_db(b"ABOUT", txn=txn))
    with pytest.raises(StoreCorrupt, match=f"has format {version}, and this program knows 3: start it with the {age}"):
        LmdbStore(tmp_path)


async def test_store_of_format_2_is_read_and_has_format_3_after_its_next_commit(tmp_path: Path) -> None:
    """Format 2 has rows of leases in seconds (`lease.read_lease_row`); the version before must refuse what follows."""
    store = LmdbStore(tmp_path)
    step(store, 1)
    await store.flush()
    name = store.file.name
    store.close()
    with lmdb.open(str(tmp_path / "current"), max_dbs=20) as env, env.begin(write=True) as txn:
        value = CHECKSUMS.seal(Table.META, b"format", msgpack.packb(["palisade-store", 2, name]))
        txn.put(b"format", value, db=env.open_db(b"ABOUT", txn=txn))
    store = LmdbStore(tmp_path)
    assert store.applied == (1, 1)
    assert store.file._read_about(b"format") == ["palisade-store", 2, name]
    step(store, 2)
    await store.flush()
    assert store.file._read_about(b"format") == ["palisade-store", 3, name]
    store.close()
    again = LmdbStore(tmp_path)
    assert (again.applied, again.file.name) == ((2, 1), name)
    again.close()


@pytest.mark.parametrize("complete", [False, True])
async def test_interrupted_swap_is_finished_or_undone(tmp_path: Path, complete: bool) -> None:
    """Scenarios, Raft group: crash between the snapshot and the rest. One whole store at every moment."""
    for name, number in (("old", 1), ("new", 2)):
        store = LmdbStore(tmp_path / name)
        step(store, number)
        await store.flush()
        store.close()
    directory = tmp_path / "store"
    directory.mkdir()
    shutil.copytree(tmp_path / "old" / "current", directory / "previous")
    shutil.copytree(tmp_path / "new" / "current", directory / "incoming")
    if complete:
        (directory / "incoming" / "complete").touch()
    store = LmdbStore(directory)
    assert store.applied == (2 if complete else 1, 1)
    assert not (directory / "previous").exists()
    store.close()


async def test_disk_thread_completion_is_detected_without_a_callback() -> None:
    thread = DiskThread("test")
    assert await thread.run(lambda: 42) == 42
    with pytest.raises(ZeroDivisionError):
        await thread.run(lambda: 1 // 0)
    thread.close()


def test_full_read_needs_no_private_memory(tmp_path: Path) -> None:
    """Issue 2: private memory stays small whatever the size of the mapped store."""
    script = """
import sys
from pathlib import Path
from palisade.metastore.lmdb_file import LmdbFile
from palisade.metastore.ordered_map import Table

def private_kib():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0])

file = LmdbFile(Path(sys.argv[1]))
before = private_kib()
rows = sum(1 for _ in file.scan(Table.REVISION, b"", None, False))
print(rows, private_kib() - before)
"""
    file = LmdbFile(tmp_path)
    txn = file.begin()
    file.put_items(txn, Table.REVISION, ((n.to_bytes(8, "big"), bytes(1000)) for n in range(30_000)), append=True)
    txn.commit()
    file.close()
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    rows, grown_kib = map(int, done.stdout.split())
    assert rows == 30_000
    assert grown_kib < 4096
