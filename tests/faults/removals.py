"""A member is removed, and clients read its vault meanwhile and afterwards, over HTTP and beside it (issue 16).

No range may have keys of two revisions, and no strict read may be stale: not at the removed member, which is cut off
and learns of its removal only when the network is restored, nor at the others, where strict changes wait for its lease
while eventual ones continue.
"""

from __future__ import annotations

import asyncio

import pytest

from palisade.vault.errors import Fenced
from palisade.vault.reader import VaultReader
from tests.faults.ground import STALL_S, Ground, Pulse
from tests.faults.rules import partition
from tests.support.fencing_cluster import now
from tests.support.processes import NodeProcess

REMOVED_EXIT_CODE = 3
REMOVED = (
    r"ERROR palisade\.node\.component_adapters: component group failed: {id} was removed from cluster e2e and serves "
    "nothing any more: .*"
)


async def removed_member(ground: Ground) -> None:
    """Cut off from the other members, but not from clients; removed; connected again: it ends."""
    cluster = await ground.serving()
    leader, (victim, other) = await cluster.leader(), await cluster.followers()
    stay = [leader, other]
    async with (
        ground.mixed(cluster, members=stay),
        ground.history(cluster, lambda: other),
        Pulse(lambda: other) as pulse,
    ):
        cut = ground.become(*partition([victim.id], [leader.id, other.id]))
        answer = await leader.ask("DELETE", f"/v1/members/{victim.id}")
        assert (answer or {}).get("http_status") == 200, answer
        ground.note(f"{victim.id} is removed")
        ground.explains(victim, REMOVED.format(id=victim.id))
        ground.seen["went_on_after_s"] = await pulse.goes_on_after(cut, STALL_S)
        await asyncio.sleep(STALL_S)  # its lease has run out, and a page that serves longer shows
        ground.become()
        await ended_as_removed(ground, victim)


async def ended_as_removed(ground: Ground, victim: NodeProcess) -> None:
    began = now()
    assert await victim.ended() == REMOVED_EXIT_CODE
    ground.note(f"{victim.id} ended {now() - began:.2f} s after the network was restored")
    with VaultReader(victim.data_dir / "vault") as reader, pytest.raises(Fenced, match="was removed from the cluster"):
        reader.range(b"/", b"0")


SCENARIOS = (removed_member,)
