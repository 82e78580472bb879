"""The embedded store: no ports, one folder, the API of the client (N7)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import palisade.node.embedded
from palisade.catalog.errors import NotCancellable
from palisade.metastore.errors import Compacted, KeyTooLarge
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put
from palisade.node.data_dir_marker import FolderError
from palisade.raftgroup.errors import RaftError, Unavailable


async def test_writes_survive_a_restart(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path / "data") as store:
        await store.put("a", "1")
        await store.put("a", "2")
        absent = Compare(b"b", CompareTarget.VERSION, CompareResult.EQUAL, 0)
        assert (await store.txn([absent], [Put(b"b", b"1"), Put(b"c", b"1")])).succeeded
        before = await store.digest()
    async with palisade.node.embedded.open(tmp_path / "data") as store:
        assert await store.digest() == before
        found = await store.range("", prefix=True)
        old = await store.get("a", revision=2)
        assert [kv.key for kv in found.kvs] == [b"a", b"b", b"c"]
        assert old is not None
        assert old.value == b"1"
        assert (await store.put("a", "3")).revision == 5


async def test_concurrent_puts_share_log_entries(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path) as store:
        await asyncio.gather(*(store.put(f"k{number}", "v") for number in range(2000)))
        status = await store.status()
    assert (status["keys"], status["revision"], status["leader"]) == (2000, 2001, "local")
    assert status["raft"]["last_index"] < 50


async def test_put_many_has_at_most_the_outstanding_puts_in_flight(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path) as store:
        pairs = [(f"k{number}", str(number)) for number in range(500)]
        assert await store.put_many(pairs, outstanding=1) == 500
        alone = (await store.status())["raft"]["last_index"]
        assert await store.put_many(pairs) == 500
        together = (await store.status())["raft"]["last_index"] - alone
        assert (alone > 500, together < 50) == (True, True)
        with pytest.raises(ValueError, match="outstanding"):
            await store.put_many(pairs, outstanding=0)
        with pytest.raises(KeyTooLarge):
            await store.put_many([("a", "1"), ("k" * 5000, "1")])


async def test_watch_receives_writes_and_ends_with_the_store(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path) as store:
        await store.put("a", "1")
        watch = store.watch("a", start_revision=1, prev_kv=True)
        await store.delete("a")
        seen = [await anext(watch), await anext(watch)]
        assert [batch.revision for batch in seen] == [2, 3]
        assert watch.next_revision == 4
        waiting = asyncio.ensure_future(anext(watch))
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="closed"):
        await waiting


async def test_cancelled_wait_loses_no_event(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path) as store, store.watch("a") as watch:
        seen: list[int] = []
        for number in range(50):
            put = asyncio.ensure_future(store.put("a", str(number)))
            try:
                async with asyncio.timeout(0.0005):
                    seen.append((await anext(watch)).revision)
            except TimeoutError:
                pass
            await put
        while len(seen) < 50:
            seen.append((await anext(watch)).revision)
    assert seen == list(range(2, 52))


async def test_lease_expires(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path) as store:
        lease = await store.lease_grant(1)
        await store.put("a", "1", lease=lease.id)
        async with store.watch("a") as watch, asyncio.timeout(10):
            assert (await anext(watch)).events[0].delete
        assert await store.leases() == ()


async def test_refusals_are_those_of_the_client(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path) as store:
        with pytest.raises(KeyTooLarge):
            await store.put("k" * 5000)
        for number in range(4):
            await store.put("a", str(number))
        await store.compact(4)
        with pytest.raises(Compacted):
            await store.get("a", revision=3)
        with pytest.raises(Compacted):
            await anext(store.watch("a", start_revision=2))


async def test_folder_in_use_or_of_another_owner_is_refused(tmp_path: Path) -> None:
    async with palisade.node.embedded.open(tmp_path / "mine") as store:
        with pytest.raises((FolderError, RaftError)):
            async with palisade.node.embedded.open(tmp_path / "mine"):
                pass
        assert (await store.put("a", "1")).revision == 2
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("mine")
    with pytest.raises(FolderError, match="not empty"):
        async with palisade.node.embedded.open(tmp_path / "other"):
            pass


async def test_catalog_of_an_embedded_store_survives_a_restart(tmp_path: Path) -> None:
    """A drop that was begun before the store was closed continues when it is opened again (F9)."""
    async with palisade.node.embedded.open(tmp_path) as store:
        await store.catalog_do("create-database", {"database": "plant"}, procedure="p1", wait_s=5)
        columns = [{"name": "value", "type": "double"}]
        await store.catalog_do("create-table", {"table": "plant.t", "columns": columns}, procedure="p2", wait_s=5)
        table = await store.catalog_object("tables", "plant.t")
        await store.put(f"{table['data']}m1/1", "x")
        await store.catalog_do("drop-table", {"table": "plant.t"}, procedure="p3", wait_s=0)
    async with palisade.node.embedded.open(tmp_path) as store:
        dropped = await store.procedure("p3", wait_s=10)
        assert (dropped["state"], dropped["destroyed"]) == ("done", 1)
        assert await store.catalog_objects("tables") == []
        assert [each["id"] for each in await store.procedures()] == ["p3", "p2", "p1"]
        with pytest.raises(NotCancellable):
            await store.procedure_cancel("p3")
