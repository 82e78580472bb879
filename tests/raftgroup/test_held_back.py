"""Acknowledgements before the leader's own sync, and messages and a snapshot held back for the disk, while the state
changes (issue 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from palisade.base.snapshots import SnapshotMeta
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.snapshot_transfer import chunk, offer
from palisade.raftgroup.snapshots import Snapshots
from tests.support.lone_replica import LoneReplica
from tests.support.register_machine import put


def with_an_early_acknowledgement() -> tuple[LoneReplica, int]:
    """A leader that has not synced its own entry when n2 and n3 acknowledge it; and the entry's index."""
    leader = LoneReplica(("n1", "n2", "n3", "n4", "n5"))
    term = leader.campaigns(["n2", "n3"])
    for voter in ("n2", "n3"):
        leader.gets(voter, MessageKind.VOTE, term, True, f"{voter}-storage")
    leader.settle()
    for follower in ("n2", "n3", "n4"):
        leader.acknowledges(follower)
    leader.settle()
    leader.proposes(put("early", "a", "early"))
    index = leader.journal.last.index
    for follower in ("n2", "n3"):
        leader.acknowledges(follower)
    leader.tick()
    return leader, index


def changes_to(leader: LoneReplica, membership: Membership) -> None:
    leader.replica.propose_membership(membership)
    leader.tick()
    assert leader.replica.membership == membership


def test_acknowledged_entry_is_committed_once_the_leader_has_synced_it() -> None:
    leader, index = with_an_early_acknowledgement()
    assert leader.replica.engine.commit_index == index - 1
    leader.sync()
    leader.tick()
    assert leader.replica.engine.commit_index == index


def test_early_acknowledgement_of_a_removed_member_does_not_count() -> None:
    leader, index = with_an_early_acknowledgement()
    changes_to(leader, leader.replica.membership.without("n2"))
    leader.sync()
    leader.settle()
    assert leader.replica.leads
    assert leader.replica.engine.match_index("n2") is None
    assert leader.replica.engine.commit_index == index - 1
    for follower in ("n3", "n4"):
        leader.acknowledges(follower)
    leader.settle()
    assert leader.replica.engine.commit_index == leader.journal.last.index


def test_early_acknowledgement_of_a_replaced_storage_does_not_count() -> None:
    """The new storage has nothing of what the old one had acknowledged (RATIS-2523)."""
    leader, _ = with_an_early_acknowledgement()
    wiped = Member("n2", MemberRole.LEARNER, "new storage", {"peer": "n2"})
    changes_to(leader, leader.replica.membership.with_member(wiped))
    leader.sync()
    leader.settle()
    assert leader.replica.engine.match_index("n2") is None
    assert leader.replica.lease.confirmed_at(["n2"], leader.clock.time) is None
    assert leader.replica.leads


def test_messages_synced_by_an_install_leave_with_the_next_sync() -> None:
    """An install syncs the journal itself: nothing is dirty afterwards, and the messages still wait."""
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0))
    follower.settle()
    follower.sent.clear()
    follower.gets_append("n2", 1, [(2, 1)], prev=(1, 1))
    follower.tick()
    asyncio.run(follower.journal.sync())
    assert not follower.journal.dirty
    assert follower.said(MessageKind.APPEND_REPLY) == []
    follower.settle()
    assert [body[1] for body in follower.said(MessageKind.APPEND_REPLY)] == [3]


class Patient:
    """The owner of a node's snapshots, whose tasks run only when the test allows it."""

    def __init__(self) -> None:
        self.spawned: list[Coroutine[Any, Any, None]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        self.spawned.append(coroutine)

    def fail(self, error: Exception) -> None:
        raise error

    def installed(self, meta: SnapshotMeta, membership: Membership) -> None:
        """The test looks no further."""


def test_nothing_is_applied_between_the_decision_to_install_and_its_first_step() -> None:
    """Entries applied then might take the state past the snapshot that is about to replace it."""
    follower, owner = LoneReplica(), Patient()
    snapshots = Snapshots(
        follower.replica,
        machine=follower.machine,
        journal=follower.journal,
        clock=follower.clock,
        send=lambda *_: True,
        owner=owner,
    )
    follower.gets_append("n2", 1, [(1, 1), (2, 1), (3, 1)], prev=(0, 0))
    follower.settle()
    snapshots.receive("n2", offer(SnapshotMeta("s", 2, 1, 1), 1, follower.membership.to_wire()))
    snapshots.receive("n2", chunk("s", 0, b"x", True))
    assert len(owner.spawned) == 1, "the install is decided, and has not begun"
    follower.gets_append("n2", 1, [], prev=(3, 1), commit=3)
    follower.settle()
    assert follower.machine.applied == (0, 0)
    assert not follower.replica.may_campaign()
    owner.spawned[0].close()
