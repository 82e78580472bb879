"""An unreadable membership from another member gets into no log: there it would stop every start (issue 2)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from palisade.raftgroup.membership import Membership
from palisade.raftgroup.membership_entries import membership_entry
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import MEMBERSHIP
from tests.support.lone_replica import LoneReplica, voters, write
from tests.support.raft_cluster import Cluster, settled

MEMBER = ["n1", "voter", "n1-storage", {"peer": "n1"}, False]
UNREADABLE: list[Any] = [
    b"",
    b"\xc1",
    b"\x93\x90",
    msgpack.packb(None),
    msgpack.packb([[], []]),
    msgpack.packb([[MEMBER], [], "1"]),
    msgpack.packb([[MEMBER], [[1]], 1]),
    msgpack.packb([[MEMBER], 5, 1]),
    msgpack.packb([[MEMBER, MEMBER], [], 1]),
    msgpack.packb([[["n1", "king", "s", {}, False]], [], 1]),
    msgpack.packb([[[1, "voter", "s", {}, False]], [], 1]),
    msgpack.packb([[["n1", "voter", "s", {"peer": 1}, False]], [], 1]),
    msgpack.packb([[["n1", "voter", "s", 5, False]], [], 1]),
    msgpack.packb([[["n1", "voter", "s", {}, None]], [], 1]),
]


@pytest.mark.parametrize("packed", UNREADABLE)
def test_append_with_an_unreadable_membership_is_dropped_and_logged(
    packed: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    follower = LoneReplica()
    follower.gets_append("n2", 1, [(1, 1)], prev=(0, 0))
    follower.settle()
    follower.sent.clear()
    with caplog.at_level(logging.WARNING):
        follower.gets("n2", MessageKind.APPEND, 1, 1, 1, 1, 100.0, [[write(2, 1), 1], [MEMBERSHIP + packed, 1]])
    follower.settle()
    assert follower.log == [(1, 1)]
    assert follower.said(MessageKind.APPEND_REPLY) == []
    assert follower.replica.membership == follower.membership
    assert "entry 3 of term 1 can't be read" in caplog.text
    follower.crash()
    assert follower.log == [(1, 1)]


def test_readable_membership_takes_effect_at_once() -> None:
    follower = LoneReplica()
    wanted = Membership(voters("n1", "n2").members, version=2)
    follower.gets("n2", MessageKind.APPEND, 1, 0, 0, 0, 100.0, [[membership_entry(wanted), 1]])
    assert follower.replica.membership == wanted


def test_repeated_unreadable_memberships_do_not_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    follower = LoneReplica()
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            follower.gets("n2", MessageKind.APPEND, 1, 0, 0, 0, 100.0, [[MEMBERSHIP + b"\xc1", 1]])
    assert len(caplog.records) <= 10


def test_node_that_received_an_unreadable_membership_continues(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    leader = settled(cluster)
    follower = cluster.followers()[0]
    last = follower.disk.journal.last
    body = [leader.group.term, 0, last.index, last.term, 0.0, [[MEMBERSHIP + b"\xc1", leader.group.term]]]
    follower.process.call(lambda: follower.group.on_message(leader.id, MessageKind.APPEND, body))
    cluster.run_for(0.5)
    assert not follower.failed
    assert cluster.put(follower.id, "a", "later")
