"""Bytes that change on a disk are never served (M9): the node reports the damage, and returns as a new member."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, until

pytestmark = pytest.mark.e2e

NEEDLE = "a value that can be found on the disk"
REFUSED = 2


def flip_a_byte_of_the_value(folder: Path) -> None:
    """Everywhere in the database: LMDB may keep older pages, too."""
    (path,) = folder.glob("**/data.mdb")
    content = bytearray(path.read_bytes())
    places = 0
    at = content.find(NEEDLE.encode())
    while at >= 0:
        content[at + 2] ^= 0x10
        places += 1
        at = content.find(NEEDLE.encode(), at + 1)
    assert places, f"{path} does not hold the value"
    path.write_bytes(content)


async def stopped_with_the_value_on_disk(cluster: Cluster) -> NodeProcess:
    victim = (await cluster.followers())[0]
    assert await victim.put("damaged", NEEDLE)
    found = await victim.get("/v1/kv?key=damaged")
    assert found is not None
    assert found["kvs"][0]["value"] == NEEDLE
    assert await victim.stop() == 0
    return victim


async def refused_line(node: NodeProcess) -> str:
    """The one line that names the reason why it does not start."""
    node.start()
    assert await node.ended() == REFUSED
    (line,) = [line for line in node.log().splitlines() if line.startswith("palisade node:")]
    return line


async def comes_back_as_new(cluster: Cluster, victim: NodeProcess) -> None:
    """As the error message says: an empty folder and --join."""
    founding = victim.options
    shutil.rmtree(victim.data_dir)
    leader = await cluster.leader()
    cluster.joining(victim.id, at=leader).start()
    await until(lambda: victim.get("/v1/kv?key=damaged"), "an answer")
    await cluster.ready()
    victim.options = founding
    found = await victim.get("/v1/kv?key=damaged&serializable=true")
    assert found is not None
    assert found["kvs"][0]["value"] == NEEDLE


async def test_flipped_byte_in_the_journal_is_refused_at_start(cluster: Cluster) -> None:
    async with Load(cluster.endpoints, "journal") as load:
        await load.writes(50)
        victim = await stopped_with_the_value_on_disk(cluster)
        flip_a_byte_of_the_value(victim.data_dir / "raft")
        line = await refused_line(victim)
        assert "of the log is not what was written" in line
        assert "start it with --join" in line
        await comes_back_as_new(cluster, victim)
        record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def test_flipped_byte_in_the_store_is_never_served(cluster: Cluster) -> None:
    """A file of this size is verified completely before it is used; a large one in the background."""
    victim = await stopped_with_the_value_on_disk(cluster)
    flip_a_byte_of_the_value(victim.data_dir / "store")
    line = await refused_line(victim)
    assert "is not what was written" in line
    assert "start it with --join" in line
    await comes_back_as_new(cluster, victim)
    await cluster.equal_digests()
