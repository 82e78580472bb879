"""Scenarios of broken links: in one direction, late, split in two halves, with a late log and timely stages.

Each has readers beside every vault and a writer of strict changes, and is checked by `tests/support/fence_history.py`:
no stale read, no read older than an earlier one of any reader, and strict writes that continue in time (issue 4, "Shown
by" 2). Each one must detect some planted fault of the product: `FAULTS_SHOWN`.
"""

from __future__ import annotations

import asyncio

from tests.faults.ground import ELECTION_S, STALL_S, Ground, Pulse, values_of
from tests.faults.network import CLIENT, PORTS
from tests.faults.rules import ANY, TCP, Rule, partition
from tests.support.fencing_cluster import History, lease, now
from tests.support.processes import NodeProcess, until

WRITES = 30
LATE_S = 5.0
"""More than T_fence, and more than T_proceed."""
HEARD_LATER_S = 0.8
"""How long a planted fault serves stale values: longer than readers wait for a core on a busy machine."""
JUST_MS = 200
"""A grant of this age is followed by the next one after 400 ms."""
LATER_EACH_STEP_S, STEP_S = 0.1, 0.15
"""The delay of a link grows slowly enough that no node goes without messages for an election timeout."""


async def back(ground: Ground, history: History, nodes: list[NodeProcess]) -> None:
    """The network is restored; every node serves current values. For a planted fault all violations have happened by
    then."""
    if ground.plant in FAULTS_SHOWN:
        return
    await ground.heals(nodes)
    healed = now()
    await history.writes(WRITES)
    for node in nodes:
        await until(lambda node=node: values_of(history, node, healed), f"reads of {node.id} after the fault")


async def responses_lost(ground: Ground) -> None:
    """Messages of a holder arrive at the leader; the leader's responses and stages are lost."""
    cluster = await ground.serving()
    leader, (victim, other) = await cluster.leader(), await cluster.followers()
    async with (
        ground.mixed(cluster),
        ground.history(cluster, lambda: other) as history,
        Pulse(lambda: other) as pulse,
    ):
        cut = ground.become(Rule(leader.id, victim.id, carrying=True, loss=1.0))
        ground.seen["went_on_after_s"] = await pulse.goes_on_after(cut, STALL_S)
        await ground.fenced(history, victim, cut)
        await history.writes(WRITES)
        await back(ground, history, cluster.nodes)


async def requests_lost(ground: Ground) -> None:
    """Messages of a holder to the leader are lost; the leader's stages and releases arrive."""
    cluster = await ground.serving()
    leader, (victim, other) = await cluster.leader(), await cluster.followers()
    async with (
        ground.mixed(cluster),
        ground.history(cluster, lambda: other) as history,
        Pulse(lambda: other) as pulse,
    ):
        cut = ground.become(Rule(victim.id, leader.id, carrying=True, loss=1.0))
        ground.seen["went_on_after_s"] = await pulse.goes_on_after(cut, STALL_S)
        await ground.fenced(history, victim, cut)
        await history.writes(WRITES)
        await back(ground, history, cluster.nodes)


async def late(ground: Ground) -> None:
    """The leader's messages are increasingly delayed, in the end by more than T_fence, and never stop arriving."""
    cluster = await ground.serving()
    leader, (victim, other) = await cluster.leader(), await cluster.followers()
    async with ground.history(cluster, lambda: other) as history:
        began = now()
        await slowly_late(ground, leader, victim)
        await history.writes(3)
        await ground.fenced(history, victim, began)
        await back(ground, history, cluster.nodes)
    assert longest_write(ground, history, began) < STALL_S


async def slowly_late(ground: Ground, source: NodeProcess, destination: NodeProcess) -> None:
    steps = int(LATE_S / LATER_EACH_STEP_S)
    for step in range(1, steps + 1):
        ground.network.become([Rule(source.id, destination.id, delay_s=step * LATER_EACH_STEP_S)])
        await asyncio.sleep(STEP_S)
    ground.note(f"from {source.id} to {destination.id} everything takes {LATE_S} s")


async def leader_in_minority(ground: Ground) -> None:
    """The leader and a follower are cut off from the majority, and from writers."""
    cluster = await ground.serving(followers=1)
    leader, others = await cluster.leader(), await cluster.followers()
    here, follower = others[0], cluster.followers_[0]
    writer = [here]
    async with (
        ground.mixed(cluster),
        ground.history(cluster, lambda: writer[0]) as history,
        Pulse(lambda: here) as pulse,
    ):
        majority = [node.id for node in others]
        cut = ground.become(*partition([leader.id, follower.id], [*majority, CLIENT]))
        ground.seen["went_on_after_s"] = await pulse.goes_on_after(cut, ELECTION_S + STALL_S)
        await history.writes(WRITES)
        for node in (leader, follower):
            await ground.fenced(history, node, cut)
        await back(ground, history, cluster.nodes)


async def log_late(ground: Ground) -> None:
    """A node receives no log, but all stages. It serves released changes nevertheless, until it cannot mark what is
    staged: a region becomes strict, and its vault lacks earlier writes below its prefix. Later messages arrive
    late, so a faulty node would serve stale values for as long: values that it had before, and none that it knows
    to be pending."""
    cluster = await ground.serving()
    leader, (victim, other) = await cluster.leader(), await cluster.followers()
    async with ground.history(cluster, lambda: other) as history:
        no_log = Rule(ANY, victim.id, protocol=TCP, port=PORTS["peer"], carrying=True, loss=1.0)
        behind = ground.become(no_log)
        await history.writes(WRITES)
        await until(lambda: len(values_of(history, victim, behind)) > WRITES, f"reads of {victim.id} without the log")
        async with history.reads_alone():
            newest = history.answered[-1].value
            await until(lambda: values_of(history, victim, behind)[-1].value == newest, f"{victim.id} showing {newest}")
            await until(lambda: has_just_renewed(victim), f"a grant for {victim.id}")
            region = asyncio.create_task(other.ask("PUT", "/v1/regions/late", {"prefix": "/late/"}))
            changed = now()
            await until(lambda: has_a_wait(leader), f"{leader.id} waiting for {victim.id}")
        await asyncio.sleep(1.0)
        assert not region.done(), f"{victim.id} has marked what it can't have marked"
        ground.become(no_log, Rule(leader.id, victim.id, delay_s=HEARD_LATER_S))
        await ground.fenced(history, victim, changed)
        await history.writes(WRITES)
        assert (await region or {}).get("http_status") == 200
        await back(ground, history, cluster.nodes)
    assert longest_write(ground, history, changed) < STALL_S


async def has_just_renewed(node: NodeProcess) -> bool:
    age_ms = (await lease(node)).get("lease_age_ms")
    return age_ms is not None and age_ms < JUST_MS


async def has_a_wait(leader: NodeProcess) -> bool:
    return bool(((await leader.get("/v1/fencing", timeout_s=2)) or {}).get("leader", {}).get("waits"))


def longest_write(ground: Ground, history: History, since: float) -> float:
    found = max(each.ended - max(each.began, since) for each in history.answered if each.ended > since)
    ground.seen["longest_write_s"] = found
    return found


SCENARIOS = (responses_lost, requests_lost, late, leader_in_minority, log_late)
FAULTS_SHOWN = {
    "release_without_stage": responses_lost,
    "lease_from_receipt": late,
    "grant_without_quorum": leader_in_minority,
    "ignore_required": log_late,
}
