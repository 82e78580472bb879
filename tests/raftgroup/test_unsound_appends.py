"""Entries that no leader sends get into no log: there they would stop the node, at once or when applied, and at each
later start (docs/bugs-found.md). For memberships see test_unreadable_memberships.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import BATCH, NO_OP, Entry
from palisade.raftgroup.proposals import CallbackProposal, batch_entry, batch_in
from tests.support.lone_replica import LoneReplica, write
from tests.support.raft_cluster import Cluster, settled

SENT_AT = 100.0
BACKWARDS: dict[str, tuple[int, tuple[int, int], list[int]]] = {
    "between entries": (3, (1, 1), [3, 2]),
    "at a conflict": (3, (1, 1), [2, 3, 2]),
    "from the entry before": (3, (2, 2), [1]),
    "from the message to its entries": (2, (2, 2), [2, 3]),
    "from the message to the entry before": (2, (2, 3), []),
}
"""Term of the message, (index, term) of what it builds on, terms of its entries."""
UNREADABLE: dict[str, bytes] = {
    "nothing": b"",
    "an empty batch": BATCH,
    "no msgpack": BATCH + b"\xc1",
    "cut off": write(2, 1)[:-1],
    "something behind it": write(2, 1) + b"\0",
    "no list": BATCH + msgpack.packb(5),
    "no commands": BATCH + msgpack.packb([0]),
    "one more field": BATCH + msgpack.packb([0, [b"command"], 1]),
    "commands that are no list": BATCH + msgpack.packb([0, b"command"]),
    "a command that is text": BATCH + msgpack.packb([0, [b"command", "text"]]),
    "a key that is a list": BATCH + b"\x92\x81\x90\x00\x90",
    "a kind of entry that is not known": b"\x07" + write(2, 1)[1:],
}


def follower_of_two() -> LoneReplica:
    """Its log is (1, 1), (2, 2)."""
    follower = LoneReplica()
    follower.gets_append("n2", 2, [(1, 1), (2, 2)], prev=(0, 0))
    follower.settle()
    follower.sent.clear()
    return follower


@pytest.mark.parametrize("how", BACKWARDS)
def test_append_with_decreasing_terms_is_dropped_as_a_whole(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """Seed 2027, round 941: the journal stopped the node."""
    term, prev, terms = BACKWARDS[how]
    follower = follower_of_two()
    with caplog.at_level(logging.WARNING):
        follower.gets_append("n2", term, [(prev[0] + 1 + i, at) for i, at in enumerate(terms)], prev=prev, commit=9)
    follower.settle()
    was_not_taken(follower, caplog, "go backwards")


@pytest.mark.parametrize("what", UNREADABLE)
def test_append_with_an_unreadable_entry_is_dropped_as_a_whole(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """Seed 5501, round 818: it was acknowledged, and stopped each node that applied it."""
    follower = follower_of_two()
    with caplog.at_level(logging.WARNING):
        follower.gets("n2", MessageKind.APPEND, 2, 9, 2, 2, SENT_AT, [[write(3, 2), 2], [UNREADABLE[what], 2]])
    follower.settle()
    was_not_taken(follower, caplog, "entry 4 of term 2")


def was_not_taken(follower: LoneReplica, caplog: pytest.LogCaptureFixture, why: str) -> None:
    assert follower.log == [(1, 1), (2, 2)]
    assert follower.said(MessageKind.APPEND_REPLY) == []
    assert follower.replica.engine.commit_index <= 2
    (line,) = caplog.messages
    assert "dropped an append of n2" in line
    assert why in line
    follower.crash()
    follower.gets_append("n2", 3, [(3, 3)], prev=(2, 2))
    follower.settle()
    assert follower.log == [(1, 1), (2, 2), (3, 3)]
    assert [body[1:3] for body in follower.said(MessageKind.APPEND_REPLY)] == [[4, True]]


def test_repeated_unsound_appends_do_not_fill_the_disk(caplog: pytest.LogCaptureFixture) -> None:
    follower = follower_of_two()
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            follower.gets("n2", MessageKind.APPEND, 2, 0, 2, 2, SENT_AT, [[BATCH, 2]])
    assert len(caplog.records) <= 10


def test_terms_may_stay_and_grow() -> None:
    follower = follower_of_two()
    follower.gets_append("n2", 5, [(3, 2), (4, 4), (5, 4), (6, 5)], prev=(2, 2))
    follower.gets("n2", MessageKind.APPEND, 5, 0, 6, 5, SENT_AT, [[NO_OP, 5]])
    assert follower.log[2:] == [(3, 2), (4, 4), (5, 4), (6, 5), (7, 5)]


@pytest.mark.parametrize("what", UNREADABLE)
def test_unreadable_committed_entry_stops_the_node_and_is_named(what: str) -> None:
    """An earlier release admitted it to the log."""
    follower = LoneReplica()
    follower.journal.append(Entry(write(1, 1), 1, 1))
    follower.journal.append(Entry(UNREADABLE[what], 2, 1))
    follower.sync()
    follower.gets_append("n2", 1, [], prev=(2, 1), commit=2)
    with pytest.raises(NodeFailed, match=r"entry 2 of term 1 is committed and not decodable"):
        follower.settle()
    assert follower.machine.applied == (1, 1)


def test_node_that_received_an_unsound_append_continues(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    leader = settled(cluster)
    follower = cluster.followers()[0]
    last, term = follower.disk.journal.last, leader.group.term
    for entries in ([[write(1, 1), term], [write(2, 1), term - 1]], [[BATCH + b"\xc1", term]]):
        body = [term, 0, last.index, last.term, 0.0, entries]
        follower.process.call(lambda body=body: follower.group.on_message(leader.id, MessageKind.APPEND, body))
    cluster.run_for(0.5)
    assert not follower.failed
    assert cluster.put(follower.id, "a", "later")


@given(st.recursive(st.none() | st.integers(0, 1 << 63) | st.text(), st.lists), st.lists(st.binary()))
def test_entries_of_a_leader_are_readable(stamp: Any, commands: list[bytes]) -> None:
    assert batch_in(batch_entry(stamp, commands)) == (stamp, commands)


@pytest.mark.parametrize("command", ["text", bytearray(b"bytes"), memoryview(b"bytes"), 5, None])
def test_invalid_command_is_refused_before_it_is_proposed(make_cluster: Callable[..., Cluster], command: Any) -> None:
    """Followers would refuse the entry permanently, and the leader would wait for them."""
    cluster = make_cluster()
    leader = settled(cluster)
    with pytest.raises(TypeError, match="a command is bytes"):
        leader.group.submit(CallbackProposal([b"bytes", command], lambda _: None))
    assert cluster.put(leader.id, "a", "later")
