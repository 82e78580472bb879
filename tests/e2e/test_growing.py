"""An embedded store (N7) becomes a cluster, with all its data; and a node that returns at another address is found by
the others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import palisade.node.embedded
from palisade.client import Client
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put
from palisade.node.data_dir_marker import FolderError
from tests.e2e.test_membership import members_at, voters_are
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, free_port, until

pytestmark = pytest.mark.e2e

KEYS = 2_000


async def write_without_a_cluster(folder: Path) -> tuple[int, int]:
    """(revision, id of a lease) for `check_all_there`."""
    async with palisade.node.embedded.open(folder, cluster="grown", node_id="n1") as store:
        for number in range(KEYS):
            await store.put(f"key/{number:05}", str(number))
        await store.put("history", "old")
        await store.put("history", "new")
        await store.delete("key/00000")
        absent = Compare(b"txn", CompareTarget.VERSION, CompareResult.EQUAL, 0)
        await store.txn([absent], [Put(b"txn", b"1"), Put(b"txn/2", b"1")])
        lease = await store.lease_grant(3600)
        await store.put("leased", "x", lease=lease.id)
        await store.compact(100)
        return (await store.put("last", "x")).revision, lease.id


async def check_all_there(client: Client, revision: int, lease: int) -> None:
    keys = await client.range("key/", prefix=True)
    assert [kv.key for kv in keys.kvs] == [b"key/%05d" % number for number in range(1, KEYS)]
    found = {key: await client.get(key) for key in ("history", "txn", "txn/2", "leased", "last")}
    assert all(found.values())
    assert (found["history"].value, found["history"].version) == (b"new", 2)
    assert found["last"].mod_revision == revision
    assert (await client.get("history", revision=found["history"].mod_revision - 1)).value == b"old"
    with pytest.raises(Compacted):
        await client.get("key/00001", revision=99)
    assert (await client.lease_info(lease)).keys == (b"leased",)


async def test_folder_of_an_embedded_store_grows_into_a_cluster(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(size=1, cluster="grown")
    first = cluster.nodes[0]
    revision, lease = await write_without_a_cluster(first.data_dir)
    first.options.pop("initial_cluster")
    cluster.start()
    await cluster.ready()
    async with Load([first.stream], "grown") as load:
        for member in ("n2", "n3"):
            cluster.joining(member, at=first).start()
            await until(lambda: voters_are(first, *(each.id for each in cluster.nodes)), f"{member} voting")
        await cluster.ready()
        await load.writes(100)
        first.kill()
        others = cluster.running
        await cluster.leader(others)
        async with Client([each.stream for each in others]) as client:
            await check_all_there(client, revision, lease)
            await client.put("without n1", "x")
        first.start()
        await cluster.ready()
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()
    for each in cluster.nodes:
        known = {name: member["addresses"] for name, member in (await members_at(each)).items()}
        assert known == {one.id: {"http": one.http, "peer": one.peer, "stream": one.stream} for one in cluster.nodes}
    assert await first.stop() == 0
    with pytest.raises(FolderError, match="members n1, n2, n3: start it with palisade node"):
        async with palisade.node.embedded.open(first.data_dir, cluster="grown", node_id="n1"):
            pass


async def test_node_that_returns_on_other_ports_is_found(new_cluster: Callable[..., Cluster]) -> None:
    """With two members nothing can be committed before the other one connects to the new address."""
    cluster = new_cluster(size=2)
    cluster.start()
    await cluster.ready()
    async with Client(cluster.endpoints) as client:
        await client.put("before", "x")
        moved = (await cluster.followers())[0]
        moved.kill()
        moved.http, moved.peer, moved.stream = (f"127.0.0.1:{free_port()}" for _ in range(3))
        moved.options.pop("initial_cluster")
        moved.start()
        await cluster.ready()
        await client.put("after", "x")
    wanted = {"http": moved.http, "peer": moved.peer, "stream": moved.stream}

    async def known_to_all() -> bool:
        return all([(await members_at(each))[moved.id]["addresses"] == wanted for each in cluster.nodes])

    await until(known_to_all, "the new addresses being known to both")
    await cluster.equal_digests()
