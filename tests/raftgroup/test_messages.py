"""A message has the shape of its kind before anything handles it, so nothing can fail half-way for that reason."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palisade.raftgroup.messages import NUMBER_MAX, Kind, is_well_formed
from tests.support.lone_replica import LoneReplica
from tests.support.raft_cluster import Cluster, settled

WELL_FORMED: dict[Kind, Any] = {
    Kind.APPEND: [1, 0, 0, 0, 1.5, [[b"\x01", 1]]],
    Kind.HEARTBEAT: [1, 2],
    Kind.APPEND_REPLY: [1, 2, True, 1.5, "storage"],
    Kind.HEARTBEAT_REPLY: [1, 1.5, "storage"],
    Kind.PRE_VOTE: [1, 2, 3],
    Kind.PRE_VOTE_REPLY: [1, True, 0, "storage"],
    Kind.REQUEST_VOTE: [1, 2, 3, False],
    Kind.VOTE: [1, True, "storage"],
    Kind.CAMPAIGN_NOW: [1],
    Kind.FORWARD: [[1, [b"command"], 1]],
    Kind.FORWARD_REPLY: [[1, 0, 5, 1, [None]]],
    Kind.REQUEST: [1, "read_index", []],
    Kind.RESPONSE: [1, None, 5],
    Kind.FOUNDING: [{"n1": "storage"}],
}
WIRE = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=12,
)


@pytest.mark.parametrize("kind", list(WELL_FORMED))
def test_what_is_said_is_well_formed(kind: Kind) -> None:
    assert is_well_formed(kind, WELL_FORMED[kind])


@pytest.mark.parametrize("kind", list(WELL_FORMED))
def test_a_field_more_or_less_or_of_another_type_is_not(kind: Kind) -> None:
    body = WELL_FORMED[kind]
    assert not is_well_formed(kind, None)
    assert not is_well_formed(kind, {"a": body})
    assert not is_well_formed(kind, [*body, "more"])
    assert not is_well_formed(kind, [object(), *body[1:]])
    if kind not in (Kind.FORWARD, Kind.FORWARD_REPLY):
        assert not is_well_formed(kind, body[:-1])


def test_every_kind_but_the_snapshots_own_is_judged() -> None:
    assert set(Kind) - set(WELL_FORMED) == {Kind.SNAPSHOT}


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(WELL_FORMED)), WIRE)
def test_no_well_formed_message_breaks_a_member(kind: Kind, body: Any) -> None:
    """A stranger's numbers may be refused with a reason; they never end in a type or index error half-way."""
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
        if not is_well_formed(kind, body) or kind not in list(Kind):
            leader.group.on_message("n2", kind, body)
    cluster.run_for(0.5)
    assert leader.group.leads
    assert cluster.read(leader.id, "a") == "first"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.APPEND, [True, 0, 0, 0, 1.0, []]),
        (Kind.APPEND, [1, 0, 0, -1, 1.0, []]),
        (Kind.APPEND, [1, 0, False, 0, 1.0, []]),
        (Kind.APPEND, [1, 0, 0, 0, math.nan, []]),
        (Kind.APPEND, [1, 0, 0, 0, 1.0, [[b"x", -1]]]),
        (Kind.HEARTBEAT, [NUMBER_MAX + 1, 1.0]),
        (Kind.HEARTBEAT, [2, math.inf]),
        (Kind.HEARTBEAT, [2, True]),
        (Kind.REQUEST_VOTE, [-3, 5, 2, True]),
        (Kind.CAMPAIGN_NOW, [(1 << 64) - 1]),
        (Kind.FORWARD, [[1, [b"x", "text"], 1]]),
        (Kind.FORWARD, [[1, [b"x", [[]]], 1]]),
        (Kind.FORWARD, [[1, [b"x"], -1]]),
    ],
)
def test_numbers_that_no_member_has_are_not_handled(kind: Kind, body: Any) -> None:
    """They stopped the node that they came to, or left it with a term that has no successor (docs/bugs-found.md)."""
    assert not is_well_formed(kind, body)
