"""Followers: they join, follow the change feed and keep a vault (issue 3; seed 001, cases a, b and c)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from palisade.client import Client
from palisade.vault.opening import open_vault
from tests.support.processes import (
    Cluster,
    FollowerProcess,
    NodeProcess,
    free_port,
    palisade,
    palisade_json,
    until,
)

pytestmark = pytest.mark.e2e


@pytest.fixture
def follower(cluster: Cluster, tmp_path: Path) -> Iterator[FollowerProcess]:
    made = FollowerProcess(tmp_path, "f1", join=cluster["n1"].http)
    yield made
    made.kill()


async def follows(follower: NodeProcess, revision: int) -> bool:
    status = await follower.status()
    return bool(status.get("ready")) and status["revision"] >= revision


async def last_recovery(follower: NodeProcess) -> dict[str, Any]:
    answer = await follower.get("/v1/recovery")
    assert answer is not None
    last: dict[str, Any] = answer["recoveries"][-1]
    return last


async def write(cluster: Cluster, prefix: str, count: int) -> int:
    """Returns the last revision."""
    async with Client(cluster.endpoints) as client:
        await client.put_many((f"{prefix}/{number}", f"value {number}") for number in range(count))
        return (await client.put(f"{prefix}/last", "x")).revision


async def test_follower_joins_and_recovers_by_replay_and_by_snapshot(
    cluster: Cluster, follower: FollowerProcess
) -> None:
    """Its vault is the cluster's state each time: the same bucket digests as a voter's."""
    revision = await write(cluster, "first", 300)
    follower.start()
    await until(lambda: follows(follower, revision), f"f1 being at {revision}")
    live = await write(cluster, "live", 50)
    await until(lambda: follows(follower, live), f"f1 following to {live}")
    topology = await cluster["n2"].get("/v1/topology")
    assert topology is not None
    row = next(row for row in topology["logical"] if row["id"] == "f1")
    assert (row["role"], row["standing"]) == ("follower", "active")
    members = await cluster["n1"].get("/v1/members")
    assert members is not None
    assert "f1" not in {member["id"] for member in members["members"]}
    assert await follower.stop() == 0

    revision = await write(cluster, "missed", 200)
    follower.start()
    await until(lambda: follows(follower, revision), f"f1 being at {revision} again")
    assert (await last_recovery(follower))["case"] == "b"
    assert await follower.stop() == 0

    revision = await write(cluster, "compacted", 200)
    async with Client(cluster.endpoints) as client:
        await client.compact(revision)
    follower.start()
    await until(lambda: follows(follower, revision), f"f1 being at {revision} after a compaction")
    report = await last_recovery(follower)
    assert (report["case"], report["snapshots"]) == ("c", 1)
    assert await follower.stop() == 0

    async with Client(cluster.endpoints) as client:
        digest = await client.digest()
    vault = open_vault(follower.data_dir / "vault")
    try:
        assert (vault.revision, vault.chain, vault.packed_sums()) == (digest.revision, digest.chain, digest.buckets)
    finally:
        vault.close()


async def test_command_line_works_with_a_follower(cluster: Cluster, follower: FollowerProcess) -> None:
    """Issue 3: status, topology, recovery and metrics of a node that has no stream."""
    follower.start()
    revision = await write(cluster, "seen", 20)
    await until(lambda: follows(follower, revision), f"f1 being at {revision}")
    status = await palisade_json("status", "--at", follower.http)
    assert [(row["id"], row["role"], row["ready"]) for row in status["nodes"]] == [("f1", "follower-node", True)]
    whole = await palisade_json("status", "--endpoints", ",".join(cluster.endpoints))
    assert [row["id"] for row in whole["nodes"]] == ["n1", "n2", "n3", "f1"]
    assert whole["nodes"][-1]["url"] == f"http://{follower.http}"
    topology = await palisade_json("topology", "--at", follower.http)
    assert {row["id"]: row["standing"] for row in topology["logical"]} == dict.fromkeys(
        ("f1", "n1", "n2", "n3"), "active"
    )
    for node in (follower, cluster["n1"]):
        changed = await palisade_json("recovery", "--at", node.http, "--catch-up-difference", "33")
        assert changed == {"catch_up_difference": 33, "before": 100}
        recoveries = await palisade_json("recovery", "--at", node.http)
        assert (recoveries["under_way"], recoveries["catch_up_difference"]) == (None, 33)
        assert recoveries["recoveries"][-1]["outcome"] == "done"
        metrics = await text_of(node, "/metrics")
        assert "palisade_recovery_running 0.0" in metrics
        assert 'palisade_logical_nodes{standing="active"} 4.0' in metrics
    cluster.kill()
    code, _, err = await palisade("topology", "--at", follower.http)
    assert code == 0, err
    follower.kill()
    code, _, err = await palisade("recovery", "--at", follower.http)
    assert (code, "no node answers at" in err) == (3, True)


async def text_of(node: NodeProcess, path: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(f"http://{node.http}{path}") as answer:
        return await answer.text()


async def test_follower_switches_to_another_member(cluster: Cluster, follower: FollowerProcess) -> None:
    follower.start()
    revision = await write(cluster, "before", 20)
    await until(lambda: follows(follower, revision), f"f1 being at {revision}")
    for victim in [cluster["n1"], cluster["n2"]]:
        victim.kill()
        revision = await write(cluster, f"without {victim.id}", 20)
        await until(lambda revision=revision: follows(follower, revision), f"f1 being at {revision}")
        victim.start()
        await cluster.ready()


async def test_vault_of_another_cluster_is_refused(cluster: Cluster, follower: FollowerProcess) -> None:
    """R7. The follower's folder is unchanged."""
    follower.start()
    revision = await write(cluster, "mine", 5)
    await until(lambda: follows(follower, revision), f"f1 being at {revision}")
    assert await follower.stop() == 0
    other = Cluster(follower.data_dir.parent / "other", 1)
    other.folder.mkdir()
    try:
        other.start()
        await other.ready()
        follower.options["join"] = other["n1"].http
        follower.start()
        assert await follower.ended() == 2
        assert "belong to the cluster with ID" in follower.log().splitlines()[-1]
    finally:
        other.kill()


@pytest.mark.parametrize("kind", [FollowerProcess, NodeProcess])
async def test_joining_node_with_a_wrong_cluster_name_is_refused_and_binds_no_folder(
    new_cluster: Callable[..., Cluster], tmp_path: Path, kind: type[NodeProcess]
) -> None:
    """Issue 16: a follower ran on with INFO lines, and its folder belonged to the wrong cluster from then on; so did
    that of a node that is to become a voter."""
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    wrong = kind(tmp_path, "x9", join=cluster["n1"].http)
    right = wrong.cluster
    wrong.cluster = "wrong"
    wrong.start()
    assert await wrong.ended() == 2
    assert "another cluster" in wrong.log() or "not wrong" in wrong.log() or "requested to join wrong" in wrong.log()
    assert not wrong.data_dir.exists()
    wrong.cluster = right
    wrong.start()
    await until(wrong.ready, "x9 in the right cluster")
    wrong.kill()


@pytest.mark.parametrize("kind", [FollowerProcess, NodeProcess])
async def test_node_that_is_stopped_before_any_node_has_answered_binds_no_folder(
    tmp_path: Path, kind: type[NodeProcess]
) -> None:
    """Its --cluster could not be corrected with the same folder."""
    node = kind(tmp_path, "x9", join=f"127.0.0.1:{free_port()}")
    node.start()
    await node.logged("topology waiting")
    assert node.data_dir.exists()
    assert await node.stop() == 0
    assert not node.data_dir.exists()


async def test_admitted_node_keeps_its_folder_when_it_is_stopped(cluster: Cluster, follower: FollowerProcess) -> None:
    follower.start()
    await until(follower.ready, "the follower")
    assert await follower.stop() == 0
    assert (follower.data_dir / "node.json").exists()
