"""Fencing with real processes: a reader in another process beside each vault, a writer, and a checker over what all of
them were told (issue 4, "Shown by" 2 and 4; requirements F2, F3, F5).

T_proceed is 3.31 s with the times of the product.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.fence_history import Told, violations
from tests.support.fencing_cluster import KEY, History, lease, make_strict, now, serving
from tests.support.processes import Cluster, until

pytestmark = pytest.mark.e2e

PROCEED_S = 3.31
STALL_S = PROCEED_S + 0.5
ELECTION_S = 1.5
NewCluster = Callable[..., Cluster]


async def started(new_cluster: NewCluster) -> Cluster:
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    await serving(cluster.nodes)
    await make_strict(cluster.nodes[0])
    return cluster


def test_the_checker_finds_stale_and_new_then_old_reads() -> None:
    written = [Told(0.0, 1.0, 1, "w"), Told(1.0, 2.0, 2, "w")]
    assert violations([Told(1.5, 1.6, 1, "a"), Told(2.5, 2.6, 2, "b")], written) == []
    assert len(violations([Told(2.1, 2.2, 1, "a")], written)) == 1
    assert len(violations([Told(1.2, 1.3, 2, "a"), Told(1.4, 1.5, 1, "b")], written)) == 1


async def test_a_killed_node_stalls_strict_writes_once_and_nobody_is_told_old_values(new_cluster: NewCluster) -> None:
    cluster = await started(new_cluster)
    leader, victim, other = await cluster.leader(), *(await cluster.followers())

    async def kill() -> None:
        victim.kill()

    async with History(cluster, cluster.nodes, lambda: other) as history:
        assert await history.longest_stall(kill) < STALL_S
        after = now()
        await history.writes(100)
        assert max(each.ended - each.began for each in history.answered if each.began > after) < 1.0
        assert not history.failures
    history.check()
    assert leader.running


async def test_a_paused_holder_is_fenced_and_comes_back_with_the_news(new_cluster: NewCluster) -> None:
    """Scenario 4 of the issue: SIGSTOP for longer than T_fence, then SIGCONT. Its readers are never told old values."""
    cluster = await started(new_cluster)
    victim, other = await cluster.followers()

    async def pause() -> None:
        victim.pause()

    async with History(cluster, cluster.nodes, lambda: other) as history:
        assert await history.longest_stall(pause) < STALL_S
        paused = now()
        await until(lambda: any(word == "fenced" for at, word in history.reads(victim)[1] if at > paused), "a fence")
        assert (await lease(other))["serves"]
        victim.resume()
        await serving([victim])
        back = now()
        await history.writes(20)
        await until(lambda: any(each.began > back for each in history.reads(victim)[0]), "reads behind the pause")
        assert not history.failures
    history.check()


async def test_a_node_that_stops_politely_stalls_nobody_a_follower_nor_the_leader(new_cluster: NewCluster) -> None:
    cluster = await started(new_cluster)
    first, other = await cluster.followers()
    leader = await cluster.leader()
    async with History(cluster, cluster.nodes, lambda: other) as history:
        assert await history.longest_stall(first.stop) < 0.3
        first.start()
        await cluster.ready()
        await serving(cluster.nodes)
        assert await history.longest_stall(leader.stop) < 0.6
        assert not history.failures
    history.check()


async def test_when_the_leader_is_killed_its_successor_releases_after_t_proceed_of_its_own(
    new_cluster: NewCluster,
) -> None:
    """Scenarios, "Fencing": a new leader with a dead node: writes wait T_proceed from its election at most, not
    twice."""
    cluster = await started(new_cluster)
    leader, other = await cluster.leader(), (await cluster.followers())[0]

    async def kill() -> None:
        leader.kill()

    async with History(cluster, cluster.nodes, lambda: other) as history:
        assert await history.longest_stall(kill) < ELECTION_S + STALL_S
        leader.start()
        await cluster.ready()
        await serving(cluster.nodes)
        moved = await other.ask("POST", "/v1/leader/transfer", {})
        assert (moved or {}).get("http_status") == 200
        await history.writes(50)
    history.check()


async def test_fenced_reads_over_http_and_who_is_asked_for_what_is_not_there(new_cluster: NewCluster) -> None:
    cluster = await started(new_cluster)
    for number, node in enumerate(cluster.nodes):
        assert (await node.put(KEY, str(number)) or {})["http_status"] == 200
        for each in cluster.nodes:
            answer = await each.get(f"/v1/fenced/{KEY.replace('/', '%2F')}") or {}
            assert answer.get("kv", {}).get("value") == str(number), (node.id, each.id, answer)
    missing = await cluster.nodes[0].get("/v1/fenced/%2Fstrict%2Fnothing")
    assert missing is not None
    assert (missing["http_status"], missing["code"]) == (404, "key-not-found")
