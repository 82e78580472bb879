"""A removed member serves nothing and ends (issue 16). It learns of the removal from its own log or from the refusals
of the others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from palisade.raftgroup.errors import MemberRemoved, MustJoin
from palisade.raftgroup.group_config import GroupEvents
from tests.support.raft_cluster import Cluster, Node, settled

MakeCluster = Callable[..., Cluster]


def removed(cluster: Cluster, gone: Node) -> None:
    leader = cluster.leaders()[0]
    cluster.call(leader.id, leader.group.remove(gone.id))


def failure(node: Node) -> BaseException | None:
    failed = node.group.failed
    return failed.exception() if failed is not None and failed.done() else None


@pytest.mark.parametrize("seed", range(4))
def test_removed_member_refuses_requests_at_once_and_fails(make_cluster: MakeCluster, seed: int) -> None:
    cluster = make_cluster(seed)
    settled(cluster)
    gone = cluster.followers()[0]
    found: list[bool] = []
    gone.group._events = GroupEvents(removed=lambda: found.append(True))
    removed(cluster, gone)
    cluster.run_for(0.6)
    assert len(found) == 1
    with pytest.raises(MemberRemoved, match=f"{gone.id} was removed from cluster"):
        gone.group.check_alive()
    assert not gone.group.try_read_barrier()
    assert failure(gone) is None, "answers under way leave first"
    cluster.run_for(2.0)
    assert isinstance(failure(gone), MemberRemoved)
    assert cluster.put(cluster.leaders()[0].id, "a", "of a member")


def test_member_that_was_cut_off_learns_of_its_removal_from_the_others(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    gone = cluster.followers()[0]
    cluster.network.isolate(gone.id)
    removed(cluster, gone)
    cluster.run_for(5.0)
    assert gone.group.removal.error is None
    cluster.network.heal()
    cluster.run_for(6.0)
    assert isinstance(failure(gone), MemberRemoved)


def test_removed_member_that_is_started_again_ends_again(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    gone = cluster.followers()[0]
    removed(cluster, gone)
    cluster.run_for(4.0)
    cluster.restart(gone.id)
    cluster.run_for(6.0)
    assert isinstance(failure(cluster.nodes[gone.id]), MemberRemoved)


def test_new_storage_of_a_founder_that_was_removed_has_to_join(make_cluster: MakeCluster) -> None:
    """As under `palisade up`, once its data folder was emptied."""
    cluster = make_cluster()
    settled(cluster)
    gone = cluster.followers()[0]
    founders = gone.founders
    removed(cluster, gone)
    cluster.run_for(4.0)
    cluster.wipe(gone.id)
    gone.founders = founders
    cluster.start(gone.id)
    cluster.run_for(4.0)
    assert isinstance(failure(gone), MustJoin)


def test_member_that_joins_again_with_a_new_storage_is_not_removed_by_its_past(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    gone = cluster.followers()[0]
    removed(cluster, gone)
    cluster.run_for(4.0)
    cluster.wipe(gone.id)
    cluster.start(gone.id)
    cluster.run_for(0.1)
    again = cluster.nodes[gone.id]
    leader = cluster.leaders()[0]
    cluster.call(leader.id, leader.group.add(cluster.member(again, becomes_voter=True)))
    cluster.run_until(lambda: gone.id in again.group.members.voters)
    cluster.run_for(5.0)
    assert again.group.removal.error is None
    assert failure(again) is None
