"""The journal on its disk: power loss, kill -9, flipped bytes, full and slow disks, foreign files."""

from __future__ import annotations

import asyncio
import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from palisade.raftgroup import lmdb_journal
from palisade.raftgroup.errors import DataDirectoryError, JournalCorrupt, NodeFailed
from palisade.raftgroup.journal import LogChanges
from palisade.raftgroup.lmdb_journal import JournalFile, LmdbJournal, meta_value, pack
from palisade.raftgroup.ports import Entry
from tests.support.full_disk import files_no_larger_than
from tests.support.journal_writer import command_of
from tests.support.power_loss import during_commit

ROOT = Path(__file__).resolve().parents[2]
BRANCH, OVERFLOW = 1, 4


def fill(journal: LmdbJournal, last: int, term: int = 1) -> None:
    for index in range(journal.last.index + 1, last + 1):
        journal.append(Entry(command_of(index, term), index, term))


def held(journal: LmdbJournal) -> list[Entry]:
    return list(journal.slice(journal.first.index + 1, journal.last.index + 1))


async def written(directory: Path, last: int) -> None:
    journal = LmdbJournal(directory)
    fill(journal, last)
    journal.set_term(1, "n1")
    journal.set_meta("name", b"value")
    await journal.sync()
    journal.close()


class Gate:
    """Holds every commit until it is opened, and counts them."""

    def __init__(self) -> None:
        self.commits = 0
        self._open = threading.Event()

    def open(self) -> None:
        self._open.set()

    def around(self, begin: Callable[[JournalFile, LogChanges], Callable[[], object]]) -> Any:
        def begin_behind_gate(file: JournalFile, changes: LogChanges) -> Callable[[], object]:
            commit = begin(file, changes)
            self.commits += 1

            def commit_behind_gate() -> object:
                self._open.wait()
                return commit()

            return commit_behind_gate

        return begin_behind_gate


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made = Gate()
    monkeypatch.setattr(JournalFile, "begin", made.around(JournalFile.begin))
    yield made
    made.open()


async def test_power_failure_during_a_commit_leaves_the_old_or_new_state(tmp_path: Path) -> None:
    """M9; scenarios, Raft group: power loss, crash during log compaction."""
    rng = random.Random(1)
    data = tmp_path / "journal" / "data.mdb"
    await written(tmp_path / "journal", 200)
    before = data.read_bytes()
    journal = LmdbJournal(tmp_path / "journal")
    old = held(journal)
    journal.truncate_from(150)
    fill(journal, 260, term=2)
    journal.compact_to(100)
    journal.set_term(2, None)
    await journal.sync()
    new = held(journal)
    journal.close()
    after = data.read_bytes()
    for number, file in enumerate(during_commit(before, after, rng, 40)):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / "data.mdb").write_bytes(file)
        journal = LmdbJournal(tmp_path / str(number))
        assert (held(journal), journal.term, journal.vote, journal.first.index) == (old, 1, "n1", 0)
        journal.close()
    journal = LmdbJournal(tmp_path / "journal")
    assert (held(journal), journal.term, journal.vote, journal.first.index) == (new, 2, None, 100)
    journal.close()


def test_kill_9_at_any_moment_loses_nothing_synced(tmp_path: Path) -> None:
    """M9; scenarios, Raft group: term never decreases across any restart."""
    rng = random.Random(2)
    directory = tmp_path / "journal"
    for seed in range(15):
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.journal_writer", str(directory), str(seed)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        with process, process.stdout as lines:  # type: ignore[union-attr]
            acknowledged = [lines.readline() for _ in range(rng.randrange(1, 40))]
            process.kill()
            acknowledged += [line for line in lines if line.endswith("\n")]
        index, term, vote = acknowledged[-1].split()
        journal = LmdbJournal(directory)
        assert journal.last.index >= int(index)
        assert (journal.term, journal.vote or "None") >= (int(term), vote) or journal.term > int(term)
        assert all(entry.command == command_of(entry.index, entry.term) for entry in held(journal))
        assert [entry.index for entry in held(journal)] == list(range(journal.first.index + 1, journal.last.index + 1))
        journal.close()


async def test_flipped_bit_is_never_served(tmp_path: Path) -> None:
    """M9. Anywhere in the file: a read returns what was written, or an error that stops the node."""
    rng = random.Random(3)
    directory = tmp_path / "journal"
    for last in (40, 80, 120):
        await written(directory, last)
    expected = [Entry(command_of(index, 1), index, 1) for index in range(1, 121)]
    sound = (directory / "data.mdb").read_bytes()
    refused = 0
    for _ in range(300):
        damaged = bytearray(sound)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        (directory / "data.mdb").write_bytes(damaged)
        try:
            journal = LmdbJournal(directory, memory_bytes=1_000)
        except (JournalCorrupt, DataDirectoryError):
            refused += 1
            continue
        try:
            assert (journal.term, journal.vote, journal.get_meta("name")) == (1, "n1", b"value")
            assert held(journal) == expected
        except JournalCorrupt:
            refused += 1
        finally:
            journal.close()
    assert refused > 100


async def test_damaged_pointer_that_would_crash_the_process_is_refused(tmp_path: Path) -> None:
    """A branch that points to a page which is no leaf: LMDB runs into a C assertion on its way to the next leaf."""
    for last in (40, 80, 120, 300):
        await written(tmp_path, last)
    content = bytearray((tmp_path / "data.mdb").read_bytes())
    heads = [struct.unpack_from("<QHHHH", content, page) for page in range(0, len(content), 4096)]
    values = [page for page, head in enumerate(heads) if head[0] == page and head[2] == OVERFLOW]
    branches = [page for page, head in enumerate(heads) if head[0] == page and head[2] == BRANCH]
    for page in branches:
        second_child = struct.unpack_from("<H", content, page * 4096 + 18)[0]
        struct.pack_into("<I", content, page * 4096 + second_child, values[0])
    assert branches
    (tmp_path / "data.mdb").write_bytes(content)
    script = (
        "import sys; from palisade.raftgroup.lmdb_journal import LmdbJournal as J; "
        "J(sys.argv[1], memory_bytes=1).slice(1, 300)"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(tmp_path), cwd=ROOT, stderr=subprocess.PIPE
    )
    said = (await child.communicate())[1].decode()
    assert child.returncode == 1
    assert "JournalCorrupt" in said


async def test_damaged_entry_is_named_with_the_remedy(tmp_path: Path) -> None:
    directory = tmp_path / "journal"
    await written(directory, 50)
    data = directory / "data.mdb"
    stored = data.read_bytes()
    place = stored.rindex(command_of(50, 1)[:50])
    data.write_bytes(stored[:place] + b"?" + stored[place + 1 :])
    with pytest.raises(JournalCorrupt, match=r"entry 50 of the log is not what was written.*remove its data directory"):
        LmdbJournal(directory)


@pytest.mark.parametrize("content", [b"x", b"garbage" * 10_000, bytes(8192)])
def test_file_that_is_no_journal_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises((DataDirectoryError, JournalCorrupt), match=r"data directory"):
        LmdbJournal(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == content


def test_foreign_lmdb_file_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=1) as env, env.begin(write=True) as txn:
        txn.put(b"somebody", b"else's")
    with pytest.raises(DataDirectoryError, match="is not a journal: give the node its own data directory"):
        LmdbJournal(tmp_path)


def test_newer_format_is_refused(tmp_path: Path) -> None:
    LmdbJournal(tmp_path).close()
    with lmdb.open(str(tmp_path), max_dbs=2) as env, env.begin(write=True) as txn:
        value = meta_value(b"format", pack(["palisade-journal", 2]))
        txn.put(b"format", value, db=env.open_db(b"meta", txn=txn))
    with pytest.raises(DataDirectoryError, match="has format 2, and this program knows up to 1"):
        LmdbJournal(tmp_path)


def test_directory_has_one_user_at_a_time(tmp_path: Path) -> None:
    journal = LmdbJournal(tmp_path)
    script = "import sys; from palisade.raftgroup.lmdb_journal import LmdbJournal; LmdbJournal(sys.argv[1])"
    second = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "DataDirectoryError" in second.stderr
    assert "in use by another process: stop it first" in second.stderr
    journal.close()
    journal.close()
    LmdbJournal(tmp_path).close()


def test_uncreatable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataDirectoryError, match=r"can't be used: not a directory\. Make it writable"):
        LmdbJournal(tmp_path / "file" / "journal")


async def test_file_grows_beyond_its_first_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lmdb_journal, "MAP_BYTES_MIN", 1 << 20)
    journal = LmdbJournal(tmp_path, memory_bytes=100_000)
    commands = [random.Random(index).randbytes(700_000) for index in range(1, 21)]
    for index, command in enumerate(commands, 1):
        journal.append(Entry(command, index, 1))
        await journal.sync()
    assert [entry.command for entry in held(journal)] == commands
    journal.close()
    journal = LmdbJournal(tmp_path)
    assert [entry.command for entry in held(journal)] == commands
    journal.close()


async def test_compaction_frees_space_that_is_reused(tmp_path: Path) -> None:
    journal = LmdbJournal(tmp_path)
    for round_number in range(60):
        fill(journal, journal.last.index + 50)
        journal.compact_to(journal.last.index - 10)
        await journal.sync()
        if round_number == 20:
            early = (tmp_path / "data.mdb").stat().st_size
    assert (tmp_path / "data.mdb").stat().st_size < 2 * early
    journal.close()


async def test_full_disk_stops_the_node_and_loses_nothing(tmp_path: Path) -> None:
    """Scenarios, everywhere: disk full."""
    await written(tmp_path, 50)
    journal = LmdbJournal(tmp_path)
    fill(journal, 60)
    journal.append(Entry(bytes(1 << 20), 61, 1))
    size = (tmp_path / "data.mdb").stat().st_size
    with files_no_larger_than(size), pytest.raises(NodeFailed, match="make room on the disk, or replace it"):
        await journal.sync()
    assert journal.synced_index == 50
    with pytest.raises(NodeFailed):
        await journal.sync()
    journal.close()
    journal = LmdbJournal(tmp_path)
    assert journal.last.index == 50
    fill(journal, 61)
    await journal.sync()
    journal.close()


async def test_slow_disk_does_not_block_the_event_loop(tmp_path: Path, gate: Gate) -> None:
    """Scenarios, everywhere: fsync takes 2 s; heartbeats continue."""
    journal = LmdbJournal(tmp_path)
    fill(journal, 1)
    sync = asyncio.ensure_future(journal.sync())
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not sync.done()
    assert journal.dirty
    assert journal.synced_index == 0
    gate.open()
    await sync
    assert journal.synced_index == 1
    journal.close()


async def test_syncs_during_a_slow_commit_share_the_next_one(tmp_path: Path, gate: Gate) -> None:
    journal = LmdbJournal(tmp_path)
    fill(journal, 1)
    syncs = [asyncio.ensure_future(journal.sync())]
    await asyncio.sleep(0)
    for index in range(2, 100):
        fill(journal, index)
        syncs.append(asyncio.ensure_future(journal.sync()))
        await asyncio.sleep(0)
    gate.open()
    await asyncio.gather(*syncs)
    assert gate.commits == 2
    assert journal.synced_index == 99
    journal.close()


async def test_entries_truncated_during_a_commit_do_not_count_as_synced(tmp_path: Path, gate: Gate) -> None:
    """A late fsync must not vouch for entries that replaced those that it wrote."""
    journal = LmdbJournal(tmp_path)
    fill(journal, 10)
    sync = asyncio.ensure_future(journal.sync())
    await asyncio.sleep(0)
    journal.truncate_from(5)
    fill(journal, 8, term=2)
    gate.open()
    await sync
    assert journal.synced_index == 4
    assert journal.dirty
    await journal.sync()
    assert journal.synced_index == 8
    journal.close()
    journal = LmdbJournal(tmp_path)
    assert [entry.term for entry in held(journal)] == [1] * 4 + [2] * 4
    journal.close()


async def test_failure_reaches_all_waiters(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = LmdbJournal(tmp_path)
    begin = JournalFile.begin

    def begin_and_fail(file: JournalFile, changes: LogChanges) -> Callable[[], object]:
        commit = begin(file, changes)

        def fail() -> None:
            commit()
            raise lmdb.DiskError("mdb_txn_commit: Input/output error")

        return fail

    monkeypatch.setattr(JournalFile, "begin", begin_and_fail)
    fill(journal, 1)
    syncs = [asyncio.ensure_future(journal.sync()) for _ in range(3)]
    await asyncio.sleep(0)
    gate.open()
    failures = await asyncio.gather(*syncs, return_exceptions=True)
    assert all(isinstance(failure, NodeFailed) and "Input/output error" in str(failure) for failure in failures)
    assert journal.synced_index == 0
    journal.close()


async def test_nothing_is_synced_after_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of a failed sync are not on disk: a later sync would leave a gap."""
    journal = LmdbJournal(tmp_path)
    fill(journal, 3)
    with monkeypatch.context() as broken:
        broken.setattr(lmdb_journal, "entry_value", None)
        with pytest.raises(NodeFailed):
            await journal.sync()
    fill(journal, 6)
    with pytest.raises(NodeFailed):
        await journal.sync()
    assert journal.synced_index == 0
    journal.close()


async def test_opening_does_not_read_the_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await written(tmp_path, 3000)
    read: list[int] = []
    entry_from = lmdb_journal.entry_from
    monkeypatch.setattr(lmdb_journal, "entry_from", lambda index, value: read.append(index) or entry_from(index, value))
    journal = LmdbJournal(tmp_path)
    assert read == list(range(3000, 2000, -1))
    assert journal.slice(10, 12) == [Entry(command_of(index, 1), index, 1) for index in (10, 11)]
    journal.close()


async def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = LmdbJournal(tmp_path, memory_bytes=1_000_000)
    for index in range(1, 101):
        journal.append(Entry(bytes(100_000), index, 1))
        await journal.sync()
    loads: list[Any] = []
    load = journal._storage.load
    monkeypatch.setattr(journal._storage, "load", lambda start, stop: loads.append((start, stop)) or load(start, stop))
    assert len(journal.slice(1, 101)) == 100
    assert loads[0][0] == 1
    assert loads[0][1] > 90
    journal.close()


def test_crash_before_the_first_commit_leaves_a_usable_directory(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"")
    LmdbJournal(tmp_path).close()
    assert os.path.getsize(tmp_path / "data.mdb") > 0
