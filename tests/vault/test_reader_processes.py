"""A reader and the node in two processes: restarts, kill -9, a clean stop, another vault (issue 4, N6, F1)."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lmdb
import pytest

from palisade.vault import lmdb_tables as lmdb_backend
from palisade.vault.directory import VaultDirectory
from palisade.vault.errors import Fenced, Pending, VaultUnusable
from palisade.vault.fence_file import clock_ns
from palisade.vault.lmdb_format import open_tables
from palisade.vault.lmdb_tables import COMMITS_PER_READER_CHECK, LmdbBackend
from palisade.vault.opening import open_vault
from palisade.vault.reader import VaultReader
from palisade.vault.tables import VaultTable
from palisade.vault.vault import POSITION
from tests.support.fenced_node import KEY
from tests.support.vault_feed import follow, full

LEASE_MS = 300
ROOT = Path(__file__).parents[2]
READS, OPENED = 20_000, 2_000


class Cluster:
    """One node over several starts. `rr`: the released revision."""

    def __init__(self, folder: Path) -> None:
        self.vault, self._rr = folder / "vault", folder / "rr"
        self._rr.write_bytes(bytes(8))
        self._process: subprocess.Popen[str] | None = None
        self._shared = os.open(self._rr, os.O_RDONLY)

    @property
    def rr(self) -> int:
        return int.from_bytes(os.pread(self._shared, 8, 0), "big")

    def start(self) -> None:
        command = [sys.executable, "-m", "tests.support.fenced_node", self.vault, self._rr, str(LEASE_MS)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "serving\n"

    def end(self, *, kill: bool = False) -> None:
        if self._process is not None:
            self._process.kill() if kill else self._process.terminate()
            assert self._process.wait(30) == (-9 if kill else 0)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def once(self, reader: VaultReader) -> int:
        """The value read: not older than the revision released before, not newer than the one released now."""
        before = self.rr
        found = reader.get(KEY)
        after = self.rr
        assert found is not None
        assert before <= int(found) <= after, f"read {found!r}, RR went from {before} to {after}"
        return int(found)

    def checked(self, reader: VaultReader) -> int:
        """The same, with retries: on a busy machine the node's lease may expire."""
        return patient(lambda: self.once(reader))


def patient(read: Callable[[], int]) -> int:
    until = time.monotonic() + 60
    while True:
        try:
            return read()
        except (Fenced, Pending):
            assert time.monotonic() < until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    made.start()
    yield made
    made.end(kill=True)
    os.close(made._shared)


def test_reads_follow_a_writer_through_kill_restart_and_stop(cluster: Cluster) -> None:
    with VaultReader(cluster.vault) as reader:
        seen = [cluster.checked(reader) for _ in range(READS)]
        assert seen == sorted(seen)
        assert seen[-1] > seen[0], "the writer went on meanwhile"

        cluster.end(kill=True)
        last, served = seen[-1], True
        while served:
            asked_ns = clock_ns()
            try:
                last = cluster.once(reader)
            except Pending:
                continue
            except Fenced:
                served = False
            assert not served or asked_ns < reader.fence.deadline_ns, "a dead node's page runs out by itself"

        cluster.start()
        assert cluster.checked(reader) >= last
        cluster.end()
        with pytest.raises(Fenced, match="the node is fenced"):
            reader.get(KEY)

        VaultDirectory(cluster.vault).put_aside()
        cluster.start()
        assert cluster.checked(reader) >= last, "the vault is another one: opened again"
        assert reader.wait_for(cluster.rr, 30) >= last


def test_readers_in_two_processes_never_see_an_older_value_after_a_newer(cluster: Cluster) -> None:
    """A value that one reader has returned, the other one returns from then on."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    other = multiprocessing.get_context("spawn").Process(target=answer, args=(cluster.vault, theirs))
    other.start()
    try:
        with VaultReader(cluster.vault) as reader:
            shown = 0
            for _ in range(2000):
                ours.send("read")
                for value in (ours.recv(), counter(reader)):
                    assert value >= shown
                    shown = value
    finally:
        ours.send("end")
        other.join(30)
    assert other.exitcode == 0


def answer(path: Path, pipe: multiprocessing.connection.Connection) -> None:
    with VaultReader(path) as reader:
        while pipe.recv() == "read":
            pipe.send(counter(reader))


def counter(reader: VaultReader) -> int:
    return patient(lambda: int(reader.get(KEY) or b""))


def test_forked_child_must_create_its_own_reader(cluster: Cluster) -> None:
    """Otherwise it would share the snapshots of its parent."""
    with VaultReader(cluster.vault) as reader:
        cluster.checked(reader)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        child = context.Process(target=forked, args=(reader, theirs))
        child.start()
        said = ours.recv()
        child.join(30)
        assert said.startswith("VaultUnusable: this reader was created before the process forked")
        assert cluster.checked(reader) > 0


def forked(reader: VaultReader, pipe: multiprocessing.connection.Connection) -> None:
    try:
        pipe.send(str(reader.get(KEY)))
    except VaultUnusable as error:
        pipe.send(f"VaultUnusable: {error}")


@pytest.fixture
def grown(cluster: Cluster) -> Iterator[Callable[[], None]]:
    """Waits until the vault has grown by 1 MiB: an open snapshot keeps its pages from being reused."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=pin, args=(cluster.vault, theirs))

    def wait() -> None:
        if child.pid is None:
            child.start()
            assert ours.recv() == "holding"
        until, file = time.monotonic() + 60, cluster.vault / "data.mdb"
        wanted = file.stat().st_size + (1 << 20)
        while file.stat().st_size < wanted:
            assert time.monotonic() < until

    yield wait
    if child.pid is not None:
        child.kill()
        child.join(30)


def pin(path: Path, pipe: multiprocessing.connection.Connection) -> None:
    backend = LmdbBackend(path, read_only=True)
    backend.hold()
    pipe.send("holding")
    pipe.recv()


def test_reader_with_a_small_map_maps_a_grown_file(cluster: Cluster, grown: Callable[[], None]) -> None:
    """The vault grew beyond the reader's map."""
    with VaultReader(cluster.vault, map_bytes=1) as reader:
        grown()
        for _ in range(100):
            cluster.checked(reader)


def test_vault_may_grow_while_lmdb_opens_it(cluster: Cluster, grown: Callable[[], None]) -> None:
    """2 % of such readers were refused: the file had grown between two steps of LMDB."""
    grown()
    for _ in range(OPENED):
        LmdbBackend(cluster.vault, read_only=True, map_bytes=1).close()


def test_vault_may_outgrow_the_map_while_it_is_opened(
    cluster: Cluster, grown: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen once on a busy machine: between opening the file and its tables."""
    tries: list[int] = []

    def late(env: lmdb.Environment, directory: VaultDirectory, *, read_only: bool) -> list[object]:
        tries.append(env.info()["map_size"])
        if len(tries) == 1:
            grown()
        return open_tables(env, directory, read_only=read_only)

    with monkeypatch.context() as patched:
        patched.setattr(lmdb_backend, "open_tables", late)
        with VaultReader(cluster.vault, map_bytes=1) as reader:
            assert cluster.checked(reader) > 0
    assert len(tries) > 1
    backend = LmdbBackend(cluster.vault, read_only=True)
    backend.env.set_mapsize(1)  # that is as much as the file has
    grown()
    backend.hold()
    assert backend.get(VaultTable.META, POSITION) is not None
    backend.close()


def test_node_clears_the_slot_of_a_killed_reader(tmp_path: Path) -> None:
    """Otherwise its snapshot would be held forever, and the vault would grow with every change."""
    vault = open_vault(tmp_path / "vault")
    assert vault.page is not None
    driver = full([(KEY, b"1")])
    follow(vault, driver)
    vault.page.serve(clock_ns() + 10**12, 1)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=hold, args=(tmp_path / "vault", theirs))
    child.start()
    assert ours.recv() == "holding"
    child.kill()
    child.join(30)
    backend = vault.backend
    assert isinstance(backend, LmdbBackend)
    assert str(child.pid) in backend.env.readers()
    for _ in range(COMMITS_PER_READER_CHECK):
        vault.set_config({})
    assert str(child.pid) not in backend.env.readers()
    vault.close()


def hold(path: Path, pipe: multiprocessing.connection.Connection) -> None:
    with VaultReader(path) as reader:
        items = reader.iterate(b"\0")
        next(items)
        pipe.send("holding")
        pipe.recv()
