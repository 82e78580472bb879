"""Faults 9 and 10 of pysyncobj.md: the bare library shows each of them, this package does not."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Any

import pysyncobj.pickle as pickle
import pytest

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.log_retention import LogRetention
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.snapshot_transfer import SnapshotMessage
from tests.support.bare_library import BareNode, entry
from tests.support.hand_clock import Clock
from tests.support.lone_replica import LoneReplica
from tests.support.raft_cluster import Cluster
from tests.support.register_machine import RegisterMachine


def dump(index: int, total: int) -> bytes:
    """What the library sends as a snapshot."""
    return gzip.compress(pickle.dumps(({"total": total}, entry(index, 1), entry(index - 1, 1), [])))


def test_fault_9_library_installs_a_snapshot_older_than_its_state() -> None:
    node = BareNode(Clock())
    node.gets_append(1, [entry(index, 1) for index in range(2, 7)], prev=(1, 0), commit=6)
    node.tick()
    assert node.raftLastApplied == 6
    node.gets("n2", type="append_entries", term=1, commit_index=6, serialized=(dump(3, 1), True, True))
    assert node.raftLastApplied == 3


def test_fault_9_library_continues_after_a_snapshot_that_it_could_not_load() -> None:
    node = BareNode(Clock())
    node.gets("n2", type="append_entries", term=1, commit_index=9, serialized=(b"not a dump", True, True))
    assert node.network.sent[-1][1]["success"] is True, "it says that it has it"


def test_fault_9_state_older_than_the_commit_index_is_refused() -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1), (3, 1)], prev=(0, 0), commit=3)
    follower.settle()
    with pytest.raises(NodeFailed, match="older than the commit index of this node"):
        follower.replica.installed_snapshot(2, 1, follower.membership)


def lagging(make_cluster: Callable[..., Cluster]) -> tuple[Cluster, str, str]:
    """A follower that is down while the others write more than the log retains."""
    cluster = make_cluster(retention=LogRetention(10))
    leader = cluster.leader().id
    follower = cluster.followers()[0].id
    cluster.crash(follower)
    for number in range(40):
        cluster.put(leader, "a", f"v{number}")
    cluster.run_for(2.0)
    assert cluster.nodes[leader].disk.journal.first.index > 10
    return cluster, leader, follower


def snapshot_messages(cluster: Cluster, to: str) -> list[tuple[int, list[Any]]]:
    """(message, body) of all snapshot messages sent to that member, from now on."""
    seen: list[tuple[int, list[Any]]] = []
    watch = cluster.network.overhear

    def overhear(sender: str, receiver: str, kind: int, body: Any) -> None:
        watch(sender, receiver, kind, body)
        if kind == MessageKind.SNAPSHOT and receiver == to:
            seen.append((body[0], body))

    cluster.network.overhear = overhear
    return seen


def test_fault_9_snapshot_that_does_not_load_stops_the_node(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster, _, follower = lagging(make_cluster)
    cluster.tolerates_failed_nodes = True

    def broken(*_: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(RegisterMachine, "install", broken)
    cluster.start(follower)
    cluster.run_until(lambda: cluster.nodes[follower].failed)
    with pytest.raises(NodeFailed, match="the disk is full"):
        cluster.nodes[follower].group.failed.result()


def test_fault_10_library_sends_a_whole_snapshot_in_one_tick() -> None:
    node = BareNode(Clock(), logCompactionBatchSize=10)
    node._SyncObj__forceLogCompaction = True
    for number in range(20):
        node.add(number)
    node.leads()
    for _ in range(30):
        node.clock.time += 0.2
        last = node.log[-1][0]
        node.gets("n2", type="next_node_idx", next_node_idx=last + 1, reset=False, success=True)
        node.tick()
    node.forceLogCompaction()
    node.tick()
    node.tick()
    assert node.log[0][0] > 2, "the log was compacted"
    node._SyncObj__raftNextIndex[node.peers["n3"]] = 1
    node.network.sent.clear()
    node.clock.time += 0.2
    node.gets("n2", type="next_node_idx", next_node_idx=node.log[-1][0] + 1, reset=False, success=True)
    node.tick()
    pieces = [message for peer, message in node.network.sent if peer == "n3" and "serialized" in message]
    assert len(pieces) > 10


def test_fault_10_snapshot_is_sent_a_few_pieces_at_a_time_and_installed_once(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster, _, follower = lagging(make_cluster)
    seen = snapshot_messages(cluster, follower)
    cluster.start(follower)
    cluster.run_until(cluster.converged)
    offers = [body for message, body in seen if message == SnapshotMessage.OFFER]
    pieces = [body[2] for message, body in seen if message == SnapshotMessage.CHUNK]
    assert len({body[1] for body in offers}) == 1
    assert pieces == sorted(set(pieces)), "no piece twice"
    assert cluster.nodes[follower].disk.machine.installs == 1
    cluster.checkers.check_run()


def test_fault_10_interrupted_snapshot_resumes(make_cluster: Callable[..., Cluster]) -> None:
    cluster, leader, follower = lagging(make_cluster)
    seen = snapshot_messages(cluster, follower)
    cluster.start(follower)
    cluster.run_until(lambda: sum(message == SnapshotMessage.CHUNK for message, _ in seen) >= 6)
    cluster.network.isolate(follower)
    cluster.run_for(4.0)
    cluster.network.heal()
    before = len(seen)
    cluster.run_until(cluster.converged)
    resumed = [body[2] for message, body in seen[before:] if message == SnapshotMessage.CHUNK]
    assert resumed
    assert min(resumed) > 0
    assert cluster.nodes[follower].disk.machine.installs == 1
    assert cluster.leader().id == leader


@pytest.mark.parametrize("moment_s", [0.002 * number for number in range(1, 30)])
def test_crash_at_any_moment_of_an_install_ends_in_the_same_state(
    make_cluster: Callable[..., Cluster], moment_s: float
) -> None:
    """Also between replacing the state and resetting the log: the journal already has the new membership."""
    cluster, leader, follower = lagging(make_cluster)
    seen = snapshot_messages(cluster, follower)
    cluster.start(follower)
    cluster.run_until(lambda: any(message == SnapshotMessage.CHUNK for message, _ in seen))
    cluster.run_for(moment_s)
    cluster.restart(follower)
    cluster.run_until(lambda: cluster.nodes[follower].healthy and cluster.converged())
    cluster.checkers.check_run()
    node = cluster.nodes[follower]
    assert node.group.members == cluster.nodes[leader].group.members
    assert node.disk.machine.registers == cluster.nodes[leader].disk.machine.registers


def test_snapshot_during_a_change_of_leader_arrives(make_cluster: Callable[..., Cluster]) -> None:
    cluster, leader, follower = lagging(make_cluster)
    seen = snapshot_messages(cluster, follower)
    cluster.start(follower)
    cluster.run_until(lambda: any(message == SnapshotMessage.CHUNK for message, _ in seen))
    cluster.crash(leader)
    cluster.leader()
    cluster.run_until(cluster.converged)
    cluster.checkers.check_run()
