"""Members join and leave while clients write (M10; issue 2, "Shown by 3"; scenarios.md, "Membership")."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

from palisade.client import Client
from palisade.vault.errors import Fenced
from palisade.vault.reader import VaultReader
from tests.support.load import Load, check_record
from tests.support.processes import Cluster, NodeProcess, palisade, until

pytestmark = pytest.mark.e2e

REMOVED, LOST = 3, 5


async def members_at(node: NodeProcess) -> dict[str, Any]:
    answer = await node.get("/v1/members")
    return {member["id"]: member for member in answer["members"]} if answer else {}


async def voters_are(node: NodeProcess, *wanted: str) -> bool:
    members = await members_at(node)
    return {each["id"] for each in members.values() if each["role"] == "voter"} == set(wanted) == set(members)


async def check_all(cluster: Cluster, load: Load) -> None:
    record = await load.stop()
    await check_record(record, load.prefix, cluster.endpoints)
    await cluster.equal_digests()


async def test_clients_follow_a_planned_change_of_leader(cluster: Cluster) -> None:
    """So that no request has to be forwarded afterwards."""
    async with Client(cluster.endpoints) as client, client.watch("followed", start_revision=1) as watch:
        for number in range(4):
            leader = await client.transfer((await cluster.followers())[0].id)
            await until(lambda leader=leader: answers(client, leader), f"the client being connected with {leader}")
            revision = (await client.put("followed", str(number))).revision
            assert (await anext(watch)).revision == revision


async def answers(client: Client, member: str) -> bool:
    return bool((await client.status())["member"] == member)


async def remove(cluster: Cluster, member: str) -> None:
    code, _, said = await palisade("member", "remove", member, "--endpoints", ",".join(cluster.endpoints))
    assert code == 0, said


async def test_members_are_added_removed_and_replaced_during_load(new_cluster: Callable[..., Cluster]) -> None:
    """In one cluster: a fourth node is added, the original followers and leader are removed, one gets a new disk."""
    cluster = new_cluster()
    cluster.start()
    await cluster.ready()
    async with Load(cluster.endpoints, "members") as load:
        await a_fourth_node_joins(cluster, load)
        await a_follower_is_removed(cluster, load)
        await the_leader_is_removed(cluster, load)
        await a_node_with_a_wiped_disk_comes_back(cluster, load)
        await check_all(cluster, load)


async def a_fourth_node_joins(cluster: Cluster, load: Load) -> None:
    follower = (await cluster.followers())[0]
    cluster.joining("n4", at=follower).start()
    await until(lambda: voters_are(follower, "n1", "n2", "n3", "n4"), "n4 voting")
    await cluster.ready()
    await load.writes(100)


async def a_follower_is_removed(cluster: Cluster, load: Load) -> None:
    """It ends and names the remedy, also when it is started again; neither leader nor term change (issue 16)."""
    leader, follower = await cluster.leader(), (await cluster.followers())[0]
    term = (await leader.status())["term"]
    await remove(cluster, follower.id)
    await ends_as_removed(follower)
    vault_says_that_it_was_removed(follower)
    await until(lambda: is_out_of_the_topology(leader, follower.id), "the removed node being dropped")
    await load.writes(50)
    follower.start()
    await ends_as_removed(follower)
    await load.writes(100)
    assert await cluster.leader([leader]) is leader
    assert (await leader.status())["term"] == term
    cluster.nodes.remove(follower)


async def ends_as_removed(node: NodeProcess) -> None:
    assert await node.ended() == REMOVED
    assert f"{node.id} was removed from cluster" in last_line(node)
    assert "start it with --join and an empty data directory" in last_line(node)


def vault_says_that_it_was_removed(node: NodeProcess) -> None:
    """Readers in other processes get the reason, too."""
    with VaultReader(node.data_dir / "vault") as reader, pytest.raises(Fenced, match="it was removed from the cluster"):
        reader.get(b"palisade/none")


async def is_out_of_the_topology(at: NodeProcess, member: str) -> bool:
    rows = (await at.get("/v1/topology"))["logical"]
    return all(row["id"] != member or row["standing"] != "active" for row in rows)


async def the_leader_is_removed(cluster: Cluster, load: Load) -> None:
    """It hands leadership over first, so writes hardly pause."""
    leader = await cluster.leader()
    others = [node for node in cluster.nodes if node is not leader]
    await remove(cluster, leader.id)
    await cluster.leader(others)
    await ends_as_removed(leader)
    await load.writes(100)
    cluster.nodes.remove(leader)
    assert await voters_are(others[0], *(node.id for node in others))


async def a_node_with_a_wiped_disk_comes_back(cluster: Cluster, load: Load) -> None:
    """Under its old id, as a new empty storage: it catches up from nothing (RATIS-2523)."""
    cluster.joining("n5", at=await cluster.leader()).start()
    ids = [node.id for node in cluster.nodes]
    await until(lambda: voters_are(cluster.nodes[0], *ids), "n5 voting")
    victim = (await cluster.followers())[0]
    others = [node for node in cluster.nodes if node is not victim]
    victim.kill()
    before = (await members_at(others[0]))[victim.id]["incarnation"]
    shutil.rmtree(victim.data_dir)
    cluster.joining(victim.id, at=others[0]).start()

    async def replaced() -> bool:
        member = (await members_at(others[0])).get(victim.id, {})
        return member.get("role") == "voter" and member["incarnation"] != before

    await until(replaced, f"{victim.id} voting with its new disk")
    await cluster.ready()
    await load.writes(100)


async def test_list_of_a_node_without_a_leader_names_whose_view_it_is(cluster: Cluster) -> None:
    alone, *others = cluster.running
    for node in others:
        node.kill()
    await until(lambda: knows_no_leader(alone), "a node that knows no leader")
    code, out, err = await palisade("member", "list", "--endpoints", alone.stream)
    assert (code, err.count("no leader is known: this is the view of the node that answered")) == (0, 1)
    assert [line.split("\t")[2] for line in out.splitlines()[1:]] == ["", "", ""]


async def knows_no_leader(node: NodeProcess) -> bool:
    return (await node.status())["leader"] is None


async def test_wiped_founding_member_is_refused(cluster: Cluster) -> None:
    """With --initial-cluster and an empty disk it could vote twice; it stops instead, with a remedy."""
    async with Load(cluster.endpoints, "wiped") as load:
        victim = (await cluster.followers())[0]
        await load.writes(50)
        victim.kill()
        shutil.rmtree(victim.data_dir)
        victim.start()
        code = await victim.ended()
        assert code == LOST, last_line(victim)
        assert await victim.ended() == LOST
        assert "the data directory was lost or swapped" in last_line(victim)
        assert "start with --join and an empty data directory" in last_line(victim)
        await load.writes(100)
        shutil.rmtree(victim.data_dir)
        founding = victim.options
        leader = await cluster.leader()
        cluster.joining(victim.id, at=leader).start()
        await until(lambda: voters_are(leader, "n1", "n2", "n3"), "the member voting again")
        await cluster.ready()
        await check_all(cluster, load)
        victim.options = founding


def last_line(node: NodeProcess) -> str:
    return node.log().strip().splitlines()[-1]
