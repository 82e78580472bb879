"""Faults 1, 2, 3 and 6 of pysyncobj.md: the bare library shows each of them, this package does not."""

from __future__ import annotations

import pytest

import palisade.raftgroup.replica
from palisade.raftgroup.message_screen import Append, Extend, screen_append
from palisade.raftgroup.messages import MessageKind
from tests.support.bare_library import BareNode, entry
from tests.support.hand_clock import Clock
from tests.support.lone_replica import LoneReplica, storage


def test_fault_1_library_removes_applied_entries_on_a_late_append() -> None:
    node = BareNode(Clock())
    node.gets_append(1, [entry(2, 1), entry(3, 1)], prev=(1, 0), commit=3)
    node.tick()
    assert node.raftLastApplied == 3
    node.gets_append(1, [entry(2, 1)], prev=(1, 0), commit=3)
    assert node.log == [(1, 0), (2, 1)]


def follower_with_three_entries() -> LoneReplica:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1), (3, 1)], prev=(0, 0), commit=2)
    follower.settle()
    return follower


def test_fault_1_late_append_removes_nothing() -> None:
    follower = follower_with_three_entries()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0), commit=2)
    follower.gets_append("n2", 1, [], prev=(2, 1), commit=2)
    assert follower.log == [(1, 1), (2, 1), (3, 1)]


def test_fault_1_late_append_acknowledges_only_what_it_covers() -> None:
    follower = follower_with_three_entries()
    follower.sent.clear()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0), commit=3)
    assert [body[1] for body in follower.said(MessageKind.APPEND_REPLY)] == [2]


def test_fault_1_commit_index_moves_only_as_far_as_the_message_covers() -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1), (2, 1), (3, 1)], prev=(0, 0), commit=0)
    follower.gets_append("n3", 2, [], prev=(1, 1), commit=3)
    follower.settle()
    assert follower.replica.engine.commit_index == 1


def test_fault_1_true_conflict_is_replaced() -> None:
    follower = follower_with_three_entries()
    follower.gets_append("n3", 2, [(3, 2), (4, 2)], prev=(2, 1), commit=2)
    assert follower.log == [(1, 1), (2, 1), (3, 2), (4, 2)]


def test_fault_1_without_the_screen_a_late_append_removes_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    def unguarded(message: Append, *_: object) -> Extend:
        return Extend(message, truncates=True)

    follower = follower_with_three_entries()
    monkeypatch.setattr(palisade.raftgroup.replica, "screen_append", unguarded)
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0), commit=2)
    assert follower.log == [(1, 1)]
    monkeypatch.setattr(palisade.raftgroup.replica, "screen_append", screen_append)


def test_fault_2_library_counts_an_acknowledgement_of_an_earlier_term() -> None:
    node = BareNode(Clock())
    node.leads()
    node.gets("n2", type="next_node_idx", next_node_idx=3, reset=False, success=True)
    assert node.field("raftMatchIndex")[node.peers["n2"]] == 2, "the message has no term that could be looked at"


def test_fault_2_acknowledgement_of_an_earlier_term_does_not_count() -> None:
    leader = LoneReplica()
    first_term = leader.leads()
    leader.gets("n3", MessageKind.APPEND_REPLY, first_term + 1, 0, False, leader.clock.time, storage("n3"))
    leader.settle()
    assert not leader.replica.leads
    leader.leads()
    match = leader.replica.engine.match_index("n3")
    leader.acknowledges("n3", term=first_term)
    assert leader.replica.engine.match_index("n3") == match is None


def test_fault_3_library_moves_next_index_below_match_index_on_reset() -> None:
    node = BareNode(Clock())
    node.leads()
    node.gets("n2", type="next_node_idx", next_node_idx=3, reset=False, success=True)
    node.gets("n2", type="next_node_idx", next_node_idx=1, reset=True, success=False)
    peer = node.peers["n2"]
    assert node.field("raftNextIndex")[peer] < node.field("raftMatchIndex")[peer] + 1


def test_fault_3_late_refusal_never_moves_next_index_below_match_index() -> None:
    leader = LoneReplica()
    term = leader.leads()
    match = leader.replica.engine.match_index("n2")
    assert match is not None
    leader.gets("n2", MessageKind.APPEND_REPLY, term, 1, False, leader.clock.time, storage("n2"))
    assert leader.replica.engine.next_index("n2") == match + 1


def test_fault_3_transport_error_keeps_next_index_of_an_uncontacted_follower() -> None:
    """RATIS-1074, whose own fix was undone when the initial matchIndex became -1: here unknown is None."""
    leader = LoneReplica()
    leader.unreachable.add("n3")
    leader.leads()
    before = leader.replica.engine.next_index("n3")
    for _ in range(20):
        leader.waits(0.11)
        leader.acknowledges("n2")
        leader.tick()
        leader.replica.replication.forget("n3")
    assert leader.replica.leads
    assert leader.replica.engine.next_index("n3") == before
    assert leader.replica.engine.match_index("n3") is None
    assert leader.replica.replication.wanting_snapshot() == []


def test_fault_3_failed_heartbeat_changes_nothing_and_a_successful_one_advances_only_what_it_covers() -> None:
    leader = LoneReplica()
    leader.leads()
    leader.proposes(b"\x93\xa1x\xa1a\xa1v")
    engine = leader.replica.engine
    before = engine.next_index("n2"), engine.match_index("n2")
    leader.unreachable = {"n2"}
    leader.waits(0.11)
    leader.tick()
    assert (engine.next_index("n2"), engine.match_index("n2")) == before
    leader.acknowledges("n2", next_index=before[1] + 1)
    assert engine.match_index("n2") == before[1]


def test_fault_6_library_trusts_its_stored_commit_index() -> None:
    node = BareNode(Clock())

    class Journal(type(node.field("raftLog"))):  # type: ignore[misc]
        def getRaftCommitIndex(self) -> int:  # noqa: N802
            return 3

    log = Journal()
    for each in (entry(1, 0), entry(2, 1), entry(3, 1)):
        log.add(*each)
    node._SyncObj__raftLog = log
    node._SyncObj__raftCommitIndex = log.getRaftCommitIndex()
    node.tick()
    assert node.raftLastApplied == 3, "applied without having heard of any leader"


def test_fault_6_restarted_node_applies_nothing_before_a_leader_sends_the_commit_index() -> None:
    follower = follower_with_three_entries()
    assert follower.machine.applied == (2, 1)
    follower.crash()
    follower.settle()
    assert follower.log == [(1, 1), (2, 1), (3, 1)]
    assert follower.machine.applied == (0, 0)
    follower.gets_append("n3", 2, [], prev=(3, 1), commit=2)
    follower.settle()
    assert follower.machine.applied == (2, 1)
