"""Faults 12 and 13 of pysyncobj.md: the bare library shows each of them, this package does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, RaftError, Unavailable
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.proposals import Applied, CallbackProposal
from tests.support.bare_library import BareNode
from tests.support.hand_clock import Clock
from tests.support.raft_cluster import Cluster, Node
from tests.support.register_machine import put


def test_fault_12_library_applies_half_a_command_repeatedly() -> None:
    node = BareNode(Clock())
    node.leads()
    node.break_after(1)
    node.tick()
    node.gets("n2", type="next_node_idx", next_node_idx=node.log[-1][0] + 1, reset=False, success=True)
    for _ in range(3):
        with pytest.raises(RuntimeError, match="in the middle"):
            node.tick()
    assert node.total == 3, "its own thread logs the exception and ticks again"


def test_fault_12_exception_in_apply_stops_the_node_and_nothing_is_applied_twice(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    cluster.tolerates_failed_nodes = True
    leader = cluster.leader()
    follower = cluster.followers()[0]
    cluster.put(leader.id, "a", "before")
    cluster.run_until(cluster.converged)
    at = follower.disk.machine.applied[0]
    follower.disk.machine.fail_at = at + 1
    cluster.put(leader.id, "a", "after")
    cluster.run_until(lambda: follower.failed)
    cluster.run_for(3.0)
    assert follower.disk.machine.applied[0] == at
    with pytest.raises(NodeFailed, match="the state machine broke"):
        follower.group.failed.result()
    with pytest.raises(NodeFailed):
        cluster.call(follower.id, follower.group.propose(b""))
    with pytest.raises(NodeFailed):
        cluster.call(follower.id, follower.group.read_barrier())
    assert not follower.group.try_read_barrier()
    assert cluster.put(cluster.leader().id, "a", "the others go on")


def test_fault_13_library_callback_is_never_called() -> None:
    node = BareNode(Clock())
    node.leads()
    ends: list[Any] = []
    node.add(1, callback=lambda *end: ends.append(end))
    for _ in range(1000):
        node.clock.time += 1.0
        node.tick()
    assert ends == []


def submit(cluster: Cluster, node: Node, timeout_s: float, name: str = "x") -> list[Applied | RaftError]:
    ends: list[Applied | RaftError] = []
    node.process.call(lambda: node.group.submit(CallbackProposal([put(name, "a", name)], ends.append, timeout_s)))
    return ends


def test_fault_13_proposal_without_a_leader_is_refused_at_its_deadline(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    node = cluster.followers()[0]
    cluster.network.isolate(node.id)
    cluster.run_for(5.0)
    ends = submit(cluster, node, 2.0)
    cluster.run_for(1.9)
    assert ends == []
    cluster.run_for(0.5)
    assert [type(end) for end in ends] == [Unavailable]
    cluster.network.heal()
    cluster.run_for(5.0)
    assert "x" not in cluster.checkers.position
    assert len(ends) == 1


def test_fault_13_short_deadline_after_a_long_one_ends_in_time(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    node = cluster.followers()[0]
    cluster.network.isolate(node.id)
    cluster.run_for(5.0)
    long, short = submit(cluster, node, 600.0, "long"), submit(cluster, node, 1.0, "short")
    cluster.run_for(1.5)
    assert (len(long), len(short)) == (0, 1)
    cluster.network.heal()
    cluster.run_for(5.0)
    assert isinstance(long[0], Applied)


def test_fault_13_proposal_in_the_log_of_an_isolated_leader_is_unknown_at_its_deadline(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    leader = cluster.leader()
    cluster.network.isolate(leader.id)
    ends = submit(cluster, leader, 0.5)
    cluster.run_for(0.9)
    assert [type(end) for end in ends] == [OutcomeUnknown]
    cluster.run_for(5.0)
    cluster.network.heal()
    cluster.run_for(3.0)
    assert len(ends) == 1


def test_fault_13_displaced_proposal_is_proposed_again_and_applied_once(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    leader = cluster.leader()
    cluster.network.isolate(leader.id)
    ends = submit(cluster, leader, 60.0)
    cluster.run_for(5.0)
    cluster.put(cluster.leader().id, "b", "of the new leader")
    cluster.network.heal()
    cluster.run_until(lambda: bool(ends))
    cluster.run_for(1.0)
    assert len(ends) == 1
    assert isinstance(ends[0], Applied)
    index, term = ends[0].index, ends[0].term
    assert cluster.checkers.committed[index][0] == term, "the answer names the term of its entry"


def test_fault_13_crash_of_the_leader_leaves_forwarded_proposals_unknown(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    leader, follower = cluster.leader(), cluster.followers()[0]
    forwarded: list[int] = []
    watch = cluster.network.overhear

    def overhear(sender: str, receiver: str, kind: int, body: Any) -> None:
        watch(sender, receiver, kind, body)
        if kind == MessageKind.FORWARD:
            forwarded.append(kind)

    cluster.network.overhear = overhear
    ends = submit(cluster, follower, 10.0)
    cluster.run_until(lambda: bool(forwarded))
    cluster.crash(leader.id)
    cluster.run_until(lambda: bool(ends))
    assert [type(end) for end in ends] == [OutcomeUnknown]
    cluster.run_for(12.0)
    assert len(ends) == 1


def test_fault_13_stopping_node_reports_unknown_for_logged_proposals_and_refuses_others(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster()
    leader = cluster.leader()
    cluster.network.isolate(leader.id)
    leader.disk.fsync_s = 0.2
    first = submit(cluster, leader, 60.0, "first")
    cluster.run_for(0.05)
    second = submit(cluster, leader, 60.0, "second")
    cluster.run_for(0.01)
    cluster.call(leader.id, leader.group.close())
    assert [type(end) for end in first] == [OutcomeUnknown]
    assert [type(end) for end in second] == [Unavailable]


def test_fault_13_failing_disk_stops_the_node_and_ends_all_proposals(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    cluster.tolerates_failed_nodes = True
    leader = cluster.leader()
    leader.disk.failing = True
    ends = submit(cluster, leader, 60.0)
    cluster.run_until(lambda: leader.failed)
    cluster.run_for(0.1)
    assert [type(end) for end in ends] == [OutcomeUnknown]
    with pytest.raises(NodeFailed, match="can't be written"):
        leader.group.failed.result()
    assert cluster.put(cluster.leader().id, "a", "the others go on")
