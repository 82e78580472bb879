"""Physical and logical topology with real processes (R9; scenarios.md, "Recovery": join)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.processes import Cluster, FollowerProcess, NodeProcess, palisade, until

pytestmark = pytest.mark.e2e

REFUSED = 2


async def logical(node: NodeProcess) -> dict[str, Any]:
    answer = await node.get("/v1/topology")
    return {row["id"]: row for row in answer["logical"]} if answer else {}


async def active(node: NodeProcess, *names: str) -> bool:
    rows = await logical(node)
    return set(rows) == set(names) and all(row["standing"] == "active" for row in rows.values())


async def all_active(cluster: Cluster, *names: str) -> None:
    for node in cluster.running:
        await until(lambda node=node: active(node, *names), f"{names} being active at {node.id}")


async def test_lost_node_is_dropped_and_returns_with_a_new_incarnation(cluster: Cluster) -> None:
    """Killed, and paused: being reachable again is not enough, it joins again."""
    await all_active(cluster, "n1", "n2", "n3")
    watcher, victim = cluster["n1"], cluster["n3"]
    before = (await logical(watcher))["n3"]["incarnation"]
    victim.pause()
    await until(lambda: active(watcher, "n1", "n2"), "the paused node being dropped")
    victim.resume()
    await all_active(cluster, "n1", "n2", "n3")
    paused = (await logical(watcher))["n3"]["incarnation"]
    victim.kill()
    await until(lambda: active(watcher, "n1", "n2"), "the killed node being dropped")
    victim.start()
    await all_active(cluster, "n1", "n2", "n3")
    assert before < paused < (await logical(watcher))["n3"]["incarnation"]
    code, out, _ = await palisade("topology", "--endpoints", watcher.stream)
    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()][-1] == ["n3", "alive", "active"]


async def test_node_without_a_valid_token_or_tag_is_refused(
    new_cluster: Callable[..., Cluster],
) -> None:
    cluster = new_cluster(1, join_token="right-token")
    cluster.start()
    await cluster.ready()
    await all_active(cluster, "n1")
    for token in ("wrong-token", ""):
        stranger = cluster.joining("n2", cluster["n1"], join_token=token)
        if not token:
            del stranger.options["join_token"]
        stranger.start()
        assert await stranger.ended() == REFUSED
        assert "join token" in stranger.log().splitlines()[-1]
        assert not stranger.data_dir.exists(), "it binds no folder"
    stranger.cluster = "other"
    stranger.options["join_token"] = "right-token"
    stranger.start()
    assert await stranger.ended() == REFUSED
    assert "this is cluster e2e, but n2 requested to join other" in stranger.log().splitlines()[-1]
    assert not stranger.data_dir.exists()
    members = await cluster["n1"].get("/v1/members")
    assert members is not None
    assert [member["id"] for member in members["members"]] == ["n1"]
    stranger.cluster = "e2e"
    stranger.start()
    await all_active(cluster, "n1", "n2")


async def test_node_joins_across_a_change_of_a_paused_leader(
    new_cluster: Callable[..., Cluster],
) -> None:
    """scenarios.md, "Recovery": leader changes during join. It is admitted once, and the old leader finds its
    record."""
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    await all_active(cluster, "n1", "n2", "n3")
    leader = await cluster.leader()
    leader.pause()
    others = [node for node in cluster.nodes if node is not leader]
    follower = FollowerProcess(cluster.folder, "f1", join=others[0].http)
    follower.start()
    try:
        await until(follower.ready, f"f1 being let in (its log ends with: {follower.log()[-800:]})")
        assert (await cluster.leader(others)) is not leader
        leader.resume()
        await all_active(cluster, "n1", "n2", "n3", "f1")
        rows = [(await logical(node))["f1"] for node in cluster.nodes]
        assert [row["incarnation"] for row in rows] == [1, 1, 1]
    finally:
        follower.kill()


async def test_second_process_with_a_name_stops_and_names_the_first(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(1)
    cluster.start()
    await cluster.ready()
    first = cluster["n1"]
    second = NodeProcess(cluster.folder / "second", "n1", join=first.http)
    second.log_file.parent.mkdir()
    second.start()
    try:
        assert await second.ended() == REFUSED
        assert "the name n1 is in use" in second.log().splitlines()[-1]
    finally:
        second.kill()
    await all_active(cluster, "n1")
    assert (await logical(first))["n1"]["incarnation"] == 1
