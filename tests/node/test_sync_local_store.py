"""The embedded store for programs without asyncio: `with palisade.open(folder) as store` (issue 15)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import palisade
from palisade.base.errors import ConfigError
from palisade.client.client_closed import ClientClosed
from palisade.metastore.errors import KeyTooLarge
from palisade.node.data_dir_marker import FolderError
from palisade.node.sync_local_store import SyncLocalStore
from palisade.raftgroup.errors import RaftError


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SyncLocalStore]:
    with palisade.open(tmp_path) as opened:
        yield opened


def test_writes_survive_a_restart(tmp_path: Path) -> None:
    with palisade.open(tmp_path / "data") as store:
        store.put("a", "1")
        assert store.txn([palisade.Compare.absent("b")], [palisade.Put("b", "1")]).succeeded
        before = store.digest()
    with palisade.open(tmp_path / "data") as store:
        assert store.digest() == before
        assert [kv.key for kv in store.range("", prefix=True).kvs] == [b"a", b"b"]
        found = store.get("a")
        assert found is not None
        assert found.value == b"1"


def test_threads_share_a_store(store: SyncLocalStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        revisions = {each.revision for each in pool.map(lambda number: store.put(f"k{number}", "v"), range(200))}
    assert revisions == set(range(2, 202))


def test_put_many_writes_in_order_and_reports_progress(store: SyncLocalStore) -> None:
    counts: list[int] = []
    assert store.put_many(((f"k/{number % 10}", str(number)) for number in range(3000)), progress=counts.append) == 3000
    assert counts[-1] == 3000
    assert [kv.value for kv in store.range("k/", prefix=True).kvs] == [str(2990 + last).encode() for last in range(10)]


def test_put_many_raises_the_first_error(store: SyncLocalStore) -> None:
    with pytest.raises(KeyTooLarge):
        store.put_many([("a", "1"), ("k" * 5000, "1"), ("b", "1")])


def test_watch_is_a_blocking_iterator(store: SyncLocalStore) -> None:
    store.put("a", "1")
    with store.watch("a", start_revision=1) as watch:
        store.delete("a")
        assert [watch.next(5).revision, watch.next(5).revision] == [2, 3]
        assert watch.trouble is None
        with pytest.raises(TimeoutError):
            watch.next(0.01)


def test_lock_is_held_within_its_with(store: SyncLocalStore) -> None:
    with store.lock("/locks/a") as lock:
        assert store.txn([lock.held()], [palisade.Put("by", "holder")]).succeeded
    assert store.leader("/locks/a") is None


def test_refused_folder_raises_and_ends_the_thread(tmp_path: Path) -> None:
    threads = threading.active_count()
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(FolderError, match="not empty"), palisade.open(tmp_path):
        pass
    assert threading.active_count() == threads


def test_folder_in_use_is_refused_until_it_is_closed(tmp_path: Path) -> None:
    with palisade.open(tmp_path) as store:
        with pytest.raises((FolderError, RaftError)), palisade.open(tmp_path):
            pass
        assert store.put("a", "1").revision == 2
    with palisade.open(tmp_path) as store:
        assert store.get("a") is not None


def test_closed_store_refuses_calls(tmp_path: Path) -> None:
    with palisade.open(tmp_path) as store:
        store.put("a", "1")
        watch = store.watch("a")
    with pytest.raises(ClientClosed, match="the store is closed; open it again"):
        store.put("a", "2")
    with pytest.raises(palisade.Unavailable, match="closed"):
        watch.next(5)
    store.close()


def test_close_raises_the_error_of_the_last_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = palisade.open(tmp_path).__enter__()

    async def full() -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store._api._disk, "flush", full)
    with pytest.raises(OSError, match="No space left"):
        store.close()
    with palisade.open(tmp_path):
        pass


def test_store_cannot_be_used_after_a_fork(store: SyncLocalStore) -> None:
    child = os.fork()
    if child == 0:
        try:
            store.put("a", "1")
        except RuntimeError as error:
            os._exit(0 if "this store was used before a fork" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_names_are_checked_when_open_is_called(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="node_id"):
        palisade.open(tmp_path, node_id="a/b")
