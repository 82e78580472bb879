"""Backup of a running cluster, restore, and a new cluster from one survivor, with real processes (issue 3, R7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.client import Client
from palisade.metastore.requests import Put
from tests.support.load import Load
from tests.support.processes import Cluster, NodeProcess, palisade, palisade_json, until

pytestmark = pytest.mark.e2e

NewCluster = Callable[..., Cluster]
VALUE_BYTES = 256 * 1024
VALUES = 400


async def refused(*arguments: str) -> str:
    code, out, err = await palisade(*arguments)
    assert (code, out) == (1, ""), err
    return err


def endpoints(cluster: Cluster) -> tuple[str, str]:
    return "--endpoints", ",".join(cluster.endpoints)


async def content(cluster: Cluster, revision: int = 0) -> list[tuple[Any, ...]]:
    """All keys at a revision, with the revisions and versions of each."""
    async with Client(cluster.endpoints, timeout_s=30) as client:
        found = await client.range(b"\0", b"\0", revision=revision)
    return [(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease) for kv in found.kvs]


def before(node: NodeProcess) -> Path:
    """Where the old data of a node are moved."""
    return node.data_dir.with_suffix(".before")


async def restore_in_place(cluster: Cluster, file: Path) -> None:
    """At the same addresses, each node by itself, as on three machines."""
    for node in cluster.nodes:
        node.data_dir.rename(before(node))
        await palisade_json("restore", str(file), "--data-dir", str(node.data_dir), "--id", node.id)
    cluster.start()
    await cluster.ready()


async def test_backup_under_load_becomes_a_cluster_of_that_revision_and_old_members_are_refused(
    new_cluster: NewCluster, tmp_path: Path
) -> None:
    file = tmp_path / "under-load.backup"
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    async with Client(cluster.endpoints, timeout_s=30) as client:
        lease = (await client.lease_grant(600)).id
        await client.put("leased", "v", lease=lease)
        await client.txn([], success=[Put(b"both/1", b"x"), Put(b"both/2", b"y")])
        await client.delete("both/1")
    async with Load(cluster.endpoints, "load") as load:
        await load.writes(200)
        backup = await palisade_json("backup", str(file), *endpoints(cluster))
        await load.writes(200)
        await load.stop()
    revision = backup["revision"]
    expected, history = await content(cluster, revision), await content(cluster, revision - 50)
    assert len(expected) == backup["keys"]
    assert (await cluster.equal_digests())["generation"] == backup["generation"] == 1
    assert (await palisade_json("backup", "--verify", str(file)))["blake2b"] == backup["blake2b"]
    cluster.kill()

    await restore_in_place(cluster, file)
    assert await content(cluster) == expected
    assert await content(cluster, revision - 50) == history
    digest = await cluster.equal_digests()
    assert (digest["revision"], digest["generation"], digest["cluster_id"]) == (revision, 2, backup["cluster_id"])
    async with Client(cluster.endpoints, timeout_s=30) as client:
        info = await client.lease_info(lease)
        assert (info.granted_ttl_s, info.keys) == (600, (b"leased",))
        assert (await client.put("after", "1")).revision == revision + 1
    assert [(await node.status())["generation"] for node in cluster.nodes] == [2, 2, 2]

    await old_member_is_refused(cluster)


async def old_member_is_refused(cluster: Cluster) -> None:
    """At the address of a member, under its name, with the data of the old cluster."""
    member = cluster["n3"]
    member.kill()
    shutil.rmtree(member.data_dir)
    before(member).rename(member.data_dir)
    member.start()
    assert await member.ended() == 2
    assert "n3 holds generation 1" in member.log()
    assert "--join" in member.log()
    await cluster.ready([cluster["n1"], cluster["n2"]])
    assert (await cluster["n1"].put("still", "there") or {})["http_status"] == 200


async def test_restore_creates_a_local_cluster_for_up(new_cluster: NewCluster, tmp_path: Path) -> None:
    file, folder = tmp_path / "small.backup", tmp_path / "local"
    old = new_cluster(size=1)
    old.start()
    await old.ready()
    await old["n1"].put("a", "1")
    await palisade_json("backup", str(file), *endpoints(old))
    report = await palisade_json("restore", str(file), "--data-dir", str(folder), "--cluster", "local-copy")
    assert sorted(report["nodes"]) == ["n1", "n2", "n3"]
    assert json.loads((folder / "cluster.json").read_text())["nodes"] == 3
    stores = [(folder / node / "data/store/current/data.mdb").read_bytes() for node in report["nodes"]]
    assert len(set(stores)) == 1
    assert "not empty" in await refused("restore", str(file), "--data-dir", str(folder))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("large"), size=1)
    yield cluster
    cluster.kill()


@pytest.fixture
async def filled(large: Cluster) -> Cluster:
    """One node with 100 MiB."""
    large.start()
    await large.ready()
    async with Client(large.endpoints, timeout_s=30) as client:
        if not (await client.range("large/", prefix=True, count_only=True)).count:
            items = ((f"large/{number}", os.urandom(VALUE_BYTES)) for number in range(VALUES))
            await client.put_many(items, outstanding=16)
    return large


def command(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "palisade.cli", *arguments], stdout=subprocess.PIPE, stderr=-1)


def size_below(path: Path) -> int:
    """On disk, of a file, or of a folder whose files may be moved meanwhile."""
    total = 0
    for folder, _, files in os.walk(path) if path.is_dir() else [(path.parent, [], [path.name])]:
        for each in files:
            with contextlib.suppress(FileNotFoundError):
                total += Path(folder, each).stat().st_blocks * 512
    return total


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
async def test_interrupted_backup_leaves_no_file(filled: Cluster, tmp_path: Path, number: int) -> None:
    file, partial = tmp_path / "b.backup", tmp_path / "b.backup.partial"
    process = command("backup", str(file), *endpoints(filled))
    await until(lambda: size_below(partial) > 4 << 20, "the beginning of a backup")
    process.send_signal(number)
    assert process.wait() == (130 if number == signal.SIGINT else -9)
    assert not file.exists()
    assert partial.exists() == (number == signal.SIGKILL)
    await palisade_json("backup", str(file), *endpoints(filled))
    assert not partial.exists()
    await palisade_json("backup", "--verify", str(file))


async def test_killed_node_leaves_no_backup_file(filled: Cluster, tmp_path: Path) -> None:
    file, partial = tmp_path / "b.backup", tmp_path / "b.backup.partial"
    process = command("backup", str(file), *endpoints(filled))
    await until(lambda: size_below(partial) > 4 << 20, "the beginning of a backup")
    filled["n1"].kill()
    _, err = await asyncio.to_thread(process.communicate)
    assert process.returncode == 3, err
    assert b"it broke off after" in err
    assert list(tmp_path.iterdir()) == []


async def test_killed_restore_leaves_no_folder_and_can_be_repeated(filled: Cluster, tmp_path: Path) -> None:
    file, folder = tmp_path / "b.backup", tmp_path / "n1"
    beside = tmp_path / "n1.restoring"
    await palisade_json("backup", str(file), *endpoints(filled))
    for wanted in (1 << 20, 30 << 20, 60 << 20):
        process = command("restore", str(file), "--data-dir", str(folder), "--id", "n1")
        await until(lambda wanted=wanted: size_below(beside) > wanted, "the beginning of a restore")
        process.kill()
        process.wait()
        assert not folder.exists()
    assert "in use by another process" not in (await palisade("restore", str(file), "--data-dir", str(folder)))[2]
    assert not beside.exists()
    assert folder.exists()


async def test_survivor_continues_alone_and_others_return_only_empty(new_cluster: NewCluster) -> None:
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    async with Load(cluster.endpoints, "before") as load:
        await load.writes(100)
        await load.stop()
    held = await content(cluster)
    await cluster.equal_digests()
    survivor, *lost = cluster.nodes
    cluster.kill()
    folder = ("--data-dir", str(survivor.data_dir))

    shown = await palisade_json("recover-quorum", *folder)
    assert (shown["done"], shown["lost_members"]) == (False, ["n2", "n3"])
    assert "was confirmed: nothing was done" in await refused("recover-quorum", *folder, "--confirm", "wrong")
    done = await palisade_json("recover-quorum", *folder, "--confirm", "e2e")
    assert (done["done"], done["generation"]) == (True, 2)
    assert "only voter" in await refused("recover-quorum", *folder, "--confirm", "e2e")

    assert (survivor.data_dir / "vault.aside-1" / "data.mdb").exists()
    survivor.start()
    await cluster.ready([survivor])
    await until(lambda: new_vault(survivor), "a vault of the new generation")
    for member in lost:
        member.start()
    for member in lost:
        assert await member.ended() == 2
        assert f"{member.id} holds generation 1" in member.log()
    assert await content(cluster) == held
    assert (await survivor.status())["generation"] == 2

    for member in lost:
        member.data_dir.rename(before(member))
        cluster.joining(member.id, at=survivor).start()
        await is_voter(survivor, member)
    await cluster.ready()
    assert (await cluster.equal_digests())["generation"] == 2
    assert await content(cluster) == held
    survivor.kill()
    await until(lambda: cluster.leader(lost), "a leader among the returned members")


async def new_vault(node: NodeProcess) -> bool:
    """The old vault was moved aside, so the first recovery starts from nothing."""
    found = await node.get("/v1/recovery")
    first = found["recoveries"][0] if found is not None and found["recoveries"] else {}
    return first.get("outcome") == "done" and first["lv_before"] == 0


async def is_voter(at: NodeProcess, member: NodeProcess) -> None:
    async def votes() -> bool:
        known = (await at.status()).get("members", [])
        return any(each["id"] == member.id and each["role"] == "voter" for each in known)

    await until(votes, f"{member.id} as a voter")
