"""A node's way into the logical topology and back (R9; scenarios.md, "Recovery": join)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from palisade.topology.admission_rules import RejectJoin
from palisade.topology.join_state import RESOLVED_BY_REJOIN, JoinPhase, JoinState
from palisade.topology.records import NodeRecord, NodeRole, NodeStanding
from palisade.wire.topology_errors import Reason

RECORD = NodeRecord("n7", NodeRole.FOLLOWER, NodeStanding.VALIDATED, "i1", 1, 4, {})
ACTIVE = replace(RECORD, standing=NodeStanding.ACTIVE)


def in_the_topology() -> JoinState:
    return JoinState().found().validated(RECORD).has_recovered(9).is_active()


def test_life_goes_through_its_phases_to_active() -> None:
    life = in_the_topology()
    assert (life.phase, life.incarnation, life.recovered) == (JoinPhase.ACTIVE, 4, 9)
    assert life.saw(ACTIVE, "i1") == life


@pytest.mark.parametrize("reason", Reason)
def test_rejection_leads_to_a_rejoin_only_if_a_rejoin_can_help(reason: Reason) -> None:
    for life in (JoinState().found(), JoinState().found().validated(RECORD), in_the_topology()):
        refused = life.refused(RejectJoin(reason, "why"))
        if reason in RESOLVED_BY_REJOIN:
            assert (refused.phase, refused.attempt) == (JoinPhase.JOINING, life.attempt + 1)
        else:
            assert (refused.phase, refused.reason) == (JoinPhase.REJECTED, "why")


@pytest.mark.parametrize(
    "seen",
    [
        None,
        replace(ACTIVE, standing=NodeStanding.GONE, reason="it has left the physical topology"),
        replace(ACTIVE, standing=NodeStanding.VALIDATED),
        replace(ACTIVE, incarnation=5),
        replace(ACTIVE, instance="i2"),
    ],
)
def test_dropped_node_joins_again_with_a_new_attempt(seen: NodeRecord | None) -> None:
    again = in_the_topology().saw(seen, "i1")
    assert (again.phase, again.attempt) == (JoinPhase.JOINING, 2)


def test_only_an_active_node_reacts_to_being_dropped() -> None:
    life = JoinState().found().validated(RECORD)
    assert life.saw(None, "i1") == life
