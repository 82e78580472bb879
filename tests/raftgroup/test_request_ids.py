"""An answer to a request before a crash is not an answer to a later request.

Found by random schedules with disks that take seconds (seed 5048 of that run): a member crashed with a proposal in
progress, was back before the leader had committed it, and received its outcome as that of its next proposal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from palisade.raftgroup import request_ids as numbers
from palisade.raftgroup.leader_rpc import LeaderCalls
from tests.support.onlooker import Violation
from tests.support.raft_cluster import Cluster, settled

MakeCluster = Callable[..., Cluster]


def ask_crash_and_ask_again(cluster: Cluster) -> None:
    """The leader's disk is slow, so that its answers are late."""
    leader = settled(cluster)
    follower = cluster.followers()[0]
    leader.disk.fsync_s = 1.5
    follower.process.start(cluster.checkers.write(follower, "a", "before the crash", 5.0))
    cluster.run_for(0.05)
    cluster.restart(follower.id)
    cluster.run_until(lambda: follower.group is not None and follower.group.leader == leader.id)
    cluster.put(follower.id, "b", "after the crash", timeout_s=20.0)
    cluster.checkers.check_run()


def test_outcome_of_a_proposal_before_a_crash_is_not_returned_for_the_next(make_cluster: MakeCluster) -> None:
    for seed in range(10):
        ask_crash_and_ask_again(make_cluster(seed))


def test_checker_detects_request_ids_that_restart(make_cluster: MakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbers, "PLACES", 1)
    with pytest.raises((Violation, AssertionError), match="was answered"):
        ask_crash_and_ask_again(make_cluster(0))


async def test_answer_to_a_call_before_a_crash_is_not_returned_for_a_later_call() -> None:
    """For example the index of a read: it would be an old one."""
    sent: list[list[object]] = []

    def calls(seed: int) -> LeaderCalls:
        return LeaderCalls(lambda _member, _kind, body: bool(sent.append(body)) or True, Random(seed))

    before = calls(1)
    lost = asyncio.ensure_future(before.call("n1", "read_index", []))
    await asyncio.sleep(0)
    after = calls(2)
    asked = asyncio.ensure_future(after.call("n1", "read_index", []))
    await asyncio.sleep(0)
    (old, *_), (new, *_) = sent
    after.answered("n1", old, None, 7)
    await asyncio.sleep(0)
    assert not asked.done()
    after.answered("n1", new, None, 8)
    assert await asked == 8
    lost.cancel()
