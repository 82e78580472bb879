"""The shape of a message is checked before it is handled, so that no handler fails midway because of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palisade.raftgroup.messages import NUMBER_MAX, MessageKind, is_well_formed
from tests.support.lone_replica import LoneReplica
from tests.support.raft_cluster import Cluster, settled

WELL_FORMED: dict[MessageKind, Any] = {
    MessageKind.APPEND: [1, 0, 0, 0, 1.5, [[b"\x01", 1]]],
    MessageKind.HEARTBEAT: [1, 2],
    MessageKind.APPEND_REPLY: [1, 2, True, 1.5, "storage"],
    MessageKind.HEARTBEAT_REPLY: [1, 1.5, "storage"],
    MessageKind.PRE_VOTE: [1, 2, 3],
    MessageKind.PRE_VOTE_REPLY: [1, True, 0, "storage"],
    MessageKind.REQUEST_VOTE: [1, 2, 3, False],
    MessageKind.VOTE: [1, True, "storage"],
    MessageKind.CAMPAIGN_NOW: [1],
    MessageKind.FORWARD: [[1, [b"command"], 1]],
    MessageKind.FORWARD_REPLY: [[1, 0, 5, 1, [None]]],
    MessageKind.REQUEST: [1, "read_index", []],
    MessageKind.RESPONSE: [1, None, 5],
    MessageKind.FOUNDING: [{"n1": "storage"}],
}
WIRE = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", list(WELL_FORMED))
def test_sent_messages_are_well_formed(kind: MessageKind) -> None:
    assert is_well_formed(kind, WELL_FORMED[kind])


@pytest.mark.parametrize("kind", list(WELL_FORMED))
def test_message_with_an_extra_missing_or_wrong_field_is_malformed(kind: MessageKind) -> None:
    body = WELL_FORMED[kind]
    assert not is_well_formed(kind, None)
    assert not is_well_formed(kind, {"a": body})
    assert not is_well_formed(kind, [*body, "more"])
    assert not is_well_formed(kind, [object(), *body[1:]])
    if kind not in (MessageKind.FORWARD, MessageKind.FORWARD_REPLY):
        assert not is_well_formed(kind, body[:-1])


def test_every_kind_except_snapshot_is_checked() -> None:
    assert set(MessageKind) - set(WELL_FORMED) == {MessageKind.SNAPSHOT}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(WELL_FORMED)), WIRE)
def test_well_formed_messages_never_break_a_member(kind: MessageKind, body: Any) -> None:
    """Arbitrary numbers may be refused with a reason; they never cause a type or index error midway."""
    if not is_well_formed(kind, body):
        return
    replica = LoneReplica()
    replica.replica.receive("n2", kind, body)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 40), WIRE), max_size=20))
def test_garbage_from_a_member_changes_nothing(
    make_cluster: Callable[..., Cluster], garbage: list[tuple[int, Any]]
) -> None:
    cluster = make_cluster()
    leader = settled(cluster)
    for kind, body in garbage:
        if not is_well_formed(kind, body) or kind not in list(MessageKind):
            leader.group.on_message("n2", kind, body)
    cluster.run_for(0.5)
    assert leader.group.leads
    assert cluster.read(leader.id, "a") == "first"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (MessageKind.APPEND, [True, 0, 0, 0, 1.0, []]),
        (MessageKind.APPEND, [1, 0, 0, -1, 1.0, []]),
        (MessageKind.APPEND, [1, 0, False, 0, 1.0, []]),
        (MessageKind.APPEND, [1, 0, 0, 0, math.nan, []]),
        (MessageKind.APPEND, [1, 0, 0, 0, 1.0, [[b"x", -1]]]),
        (MessageKind.HEARTBEAT, [NUMBER_MAX + 1, 1.0]),
        (MessageKind.HEARTBEAT, [2, math.inf]),
        (MessageKind.HEARTBEAT, [2, True]),
        (MessageKind.REQUEST_VOTE, [-3, 5, 2, True]),
        (MessageKind.CAMPAIGN_NOW, [(1 << 64) - 1]),
        (MessageKind.FORWARD, [[1, [b"x", "text"], 1]]),
        (MessageKind.FORWARD, [[1, [b"x", [[]]], 1]]),
        (MessageKind.FORWARD, [[1, [b"x"], -1]]),
    ],
)
def test_out_of_range_numbers_are_not_handled(kind: MessageKind, body: Any) -> None:
    """They stopped the receiving node, or left it with a term that has no successor (docs/bugs-found.md)."""
    assert not is_well_formed(kind, body)
