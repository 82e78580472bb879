"""A stalled leader with open connections: what other members know of it, and requests that wait for it (issue 2).

Found with real processes: a follower that was alone with two stopped members reported the old leader as its leader, and
itself as ready, permanently; and a read waited for the stopped leader although another one led already.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
from palisade.raftgroup.group import Group
from palisade.raftgroup.membership_changes import ANSWER_TIMEOUT_S
from palisade.raftgroup.messages import MessageKind
from tests.support.raft_cluster import Cluster, settled

MakeCluster = Callable[..., Cluster]


def test_isolated_member_knows_no_leader(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    settled(cluster)
    alone, *others = [*cluster.followers(), cluster.leader()]
    for node in others:
        cluster.network.block(node.id, alone.id)
    cluster.run_for(2.0)
    assert alone.group.leader is None
    assert alone.group.status().leader is None
    cluster.network.heal()
    cluster.run_until(lambda: alone.group.leader is not None)


def test_read_waiting_for_a_stalled_leader_goes_to_the_next_one(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    old = settled(cluster)
    follower = cluster.followers()[0]
    assert old.process is not None
    old.process.pause()
    began = cluster.simulation.now
    assert cluster.read(follower.id, "a", timeout_s=30.0) == "first"
    assert cluster.simulation.now - began < 4.0


CHANGES: dict[str, Callable[[Group, str], Awaitable[object]]] = {
    "add": lambda group, other: group.add(group.members.get(other)),
    "promote": lambda group, other: group.promote(other),
    "remove": lambda group, other: group.remove(other),
    "transfer": lambda group, other: group.transfer(other),
}


@pytest.mark.parametrize("name", list(CHANGES))
def test_change_requested_of_a_stalled_leader_times_out(make_cluster: MakeCluster, name: str) -> None:
    """The connection stays open: only a timeout detects it."""
    cluster = make_cluster()
    leader = settled(cluster)
    asked, other = cluster.followers()
    leader.process.pause()
    began = cluster.simulation.now
    with pytest.raises(OutcomeUnknown, match=f"{leader.id} did not answer the request {name} within 10 s"):
        cluster.call(asked.id, CHANGES[name](asked.group, other.id))
    assert leader.id in asked.peers.connected()
    assert ANSWER_TIMEOUT_S - 0.1 <= cluster.simulation.now - began <= ANSWER_TIMEOUT_S + 0.5
    assert asked.group._calls._waiting == {}


def test_late_answer_is_dropped(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    leader = settled(cluster)
    asked, other = cluster.followers()
    leader.process.pause()
    with pytest.raises(OutcomeUnknown):
        cluster.call(asked.id, asked.group.transfer(other.id))
    leader.process.resume()
    cluster.run_for(3.0)
    assert cluster.put(asked.id, "a", "later")


def test_leader_that_cannot_commit_its_first_entry_reports_it(make_cluster: MakeCluster) -> None:
    cluster = make_cluster()
    old = settled(cluster)
    heir, other = cluster.followers()
    cluster.network.intercept = lambda sender, _to, kind, body: (
        kind != MessageKind.APPEND or sender != heir.id or not body[-1]
    )
    cluster.call(old.id, old.group.transfer(heir.id))
    began = cluster.simulation.now
    with pytest.raises(Unavailable, match=f"{heir.id} was elected and could not commit anything"):
        cluster.call(heir.id, heir.group.remove(other.id))
    assert cluster.simulation.now - began < 6.0
