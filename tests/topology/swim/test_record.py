"""Which record is newer: a total order, so that all nodes end with the same whatever arrives when (R9)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from palisade.topology.swim.messages import RosterMessage
from palisade.topology.swim.protocol import Swim
from palisade.topology.swim.record import Record, SwimIdentity, SwimState
from palisade.topology.swim.wire import RUMOUR_BYTES_MAX, record_bytes

records = st.builds(
    Record,
    st.sampled_from(["n2", "n3"]),
    st.just("n2:7700"),
    st.sampled_from(["a", "b"]),
    st.integers(0, 3),
    st.sampled_from(SwimState),
)


def listener() -> Swim:
    own = Record("n1", "n1:7700", "x")
    return Swim(own, [], random.Random(1), 0.0, size_of=record_bytes, rumour_bytes_max=RUMOUR_BYTES_MAX)


@given(st.lists(records, max_size=12), st.randoms())
def test_rosters_converge_in_any_order_and_with_repeated_records(heard: list[Record], chance: random.Random) -> None:
    """Later than the timeout of suspects: a node reported dead is suspected until then."""
    nodes = [listener(), listener()]
    again = [*heard, *chance.sample(heard, len(heard) // 2)]
    chance.shuffle(again)
    for node, arriving in zip(nodes, (heard, again), strict=True):
        for record in arriving:
            node.receive(RosterMessage(SwimIdentity("n9", "y"), False, (record,)), "n9:7700", 0.0)
        for tenths in range(1, int(10 * node.timing.suspicion_s(3)) + 2):
            node.tick(tenths / 10)
    for name in ("n2", "n3"):
        one, other = (settled(node.get(name)) for node in nodes)
        assert one == other


def settled(record: Record | None) -> Record | None:
    """These listeners suspect every live node sooner or later, because they get no answers."""
    return record.become(SwimState.ALIVE) if record is not None and record.is_live else record


def test_live_node_reported_dead_is_suspected_and_refutes_in_time() -> None:
    """Also if the report is repeated (found by `tests/faults`: a node that was cut off considers all others dead)."""
    node, alive = listener(), Record("n2", "n2:1", "a", 4)
    for record in (alive, alive.become(SwimState.DEAD), alive.become(SwimState.DEAD)):
        node.receive(RosterMessage(SwimIdentity("n9", "y"), False, (record,)), "n9:7700", 0.0)
    assert node.get("n2") == alive.become(SwimState.SUSPECT)
    refuted = Record("n2", "n2:1", "a", 5)
    node.receive(RosterMessage(SwimIdentity("n9", "y"), False, (refuted,)), "n9:7700", 0.0)
    assert node.get("n2") == refuted


def test_refutation_supersedes_death_and_death_supersedes_suspicion() -> None:
    alive = Record("n2", "n2:1", "a", 4)
    suspect, dead = alive.become(SwimState.SUSPECT), alive.become(SwimState.DEAD)
    refuted = Record("n2", "n2:1", "a", 5)
    assert suspect.supersedes(alive)
    assert dead.supersedes(suspect)
    assert refuted.supersedes(dead)
    assert not alive.supersedes(suspect)


def test_leaving_node_does_not_refute_its_departure() -> None:
    node = listener()
    node.leave()
    node.receive(RosterMessage(SwimIdentity("n9", "y"), False, (node.own.become(SwimState.DEAD),)), "n9:7700", 0.0)
    assert node.own.state is SwimState.LEFT
