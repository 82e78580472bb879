"""Which nodes are admitted and which are not (R9; seed 001, "Pre-recovery actions"; scenarios.md, "Recovery": join)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from palisade.metastore.errors import StoreCorrupt
from palisade.topology.admission_rules import (
    JoinRequest,
    Keep,
    Later,
    Presence,
    Reason,
    RejectJoin,
    Verdict,
    WriteRecord,
    due_drops,
    gone,
    judge_join,
    judge_leave,
    judge_recovered,
)
from palisade.topology.join_token import token_fits, token_record
from palisade.topology.records import ClusterRules, NodeRecord, NodeRole, NodeStanding

SALT = bytes(16)
RULES = ClusterRules("c1", 1, token_record("secret", SALT), ("n1", "n2", "n3"))
REQUEST = JoinRequest("c1", 1, "secret", "n7", NodeRole.FOLLOWER, "i1", 1, {"http": "h:1"})
HERE = Presence("i1", True)


def judge(
    request: JoinRequest = REQUEST,
    rules: ClusterRules | None = RULES,
    known: NodeRecord | None = None,
    presence: Presence | None = HERE,
) -> Verdict:
    return judge_join(request, rules, "id-1", known, presence, token_fits)


def admitted(known: NodeRecord | None = None, request: JoinRequest = REQUEST) -> NodeRecord:
    verdict = judge(request, known=known, presence=Presence(request.instance, True))
    assert isinstance(verdict, WriteRecord)
    return verdict.record


def test_dropped_node_rejoins_once_the_leader_is_seen() -> None:
    """A member judges its own joining by its own view: after a partition the leader still considers it dead, and would
    drop it repeatedly (found by `tests/faults`, leader_in_minority). A new process is admitted at once."""
    dropped = gone(active(admitted()), "it has left the physical topology")
    again = replace(REQUEST, attempt=2)
    assert isinstance(judge_join(again, RULES, "id-1", dropped, HERE, token_fits, sees_leader=False), Later)
    assert isinstance(judge_join(again, RULES, "id-1", dropped, HERE, token_fits, sees_leader=True), WriteRecord)
    other, there = replace(REQUEST, instance="i2"), Presence("i2", True)
    assert isinstance(judge_join(other, RULES, "id-1", dropped, there, token_fits, sees_leader=False), WriteRecord)


def active(record: NodeRecord) -> NodeRecord:
    verdict = judge_recovered(record.name, record.instance, record.incarnation, 7, record)
    assert isinstance(verdict, WriteRecord)
    return verdict.record


def test_admitted_node_is_validated_but_not_active() -> None:
    record = admitted()
    assert (record.standing, record.incarnation, record.addresses) == (NodeStanding.VALIDATED, 1, {"http": "h:1"})
    assert active(record).standing is NodeStanding.ACTIVE
    assert active(record).recovered == 7


@pytest.mark.parametrize(
    ("wrong", "reason", "words"),
    [
        ({"cluster": "c2"}, Reason.WRONG_CLUSTER, "correct --cluster"),
        ({"protocol": 2}, Reason.WRONG_VERSION, "uses version 2"),
        ({"token": "guess"}, Reason.NO_PERMISSION, "a wrong join token"),
        ({"token": None}, Reason.NO_PERMISSION, "no join token"),
        ({"cluster_id": "id-2"}, Reason.FOREIGN_CLUSTER, "an empty data folder"),
    ],
)
def test_join_with_wrong_cluster_version_token_or_data_is_rejected_with_the_remedy(
    wrong: dict[str, object], reason: Reason, words: str
) -> None:
    verdict = judge(replace(REQUEST, **wrong))  # type: ignore[arg-type]
    assert isinstance(verdict, RejectJoin)
    assert verdict.reason is reason
    assert words in verdict.text


def test_token_appears_in_no_error_and_no_record() -> None:
    verdict = judge(replace(REQUEST, token="guess-17"))
    assert "guess-17" not in str(verdict)
    assert b"secret" not in RULES.to_bytes()


def test_cluster_without_a_token_accepts_any_token_and_none() -> None:
    open_rules = replace(RULES, token=token_record(None, SALT))
    for token in (None, "any"):
        assert isinstance(judge(replace(REQUEST, token=token), rules=open_rules), WriteRecord)


def test_join_verdict_is_later_before_initialization() -> None:
    assert isinstance(judge(rules=None), Later)


@pytest.mark.parametrize("presence", [None, Presence("i1", False), Presence("i9", True)])
def test_join_requires_presence_in_the_physical_topology(presence: Presence | None) -> None:
    """Duplicate names: while another process has the name there, no other process gets it."""
    assert isinstance(judge(presence=presence), Later)


def test_repeated_join_gets_the_same_answer() -> None:
    record = admitted()
    for known in (record, active(record)):
        assert judge(known=known) == Keep(known)
        assert judge(known=known, presence=None) == Keep(known)


def test_restarted_node_gets_a_new_incarnation() -> None:
    first = active(admitted())
    second = admitted(first, replace(REQUEST, instance="i2"))
    third = admitted(active(second), replace(REQUEST, instance="i3"))
    assert (second.incarnation, second.standing, third.incarnation) == (2, NodeStanding.VALIDATED, 3)


def test_rejoin_without_a_restart_gets_a_new_incarnation() -> None:
    dropped = due_drops([active(admitted())], {"n7": Presence("i1", False)}, False)[0]
    again = admitted(dropped, replace(REQUEST, attempt=2))
    assert (again.incarnation, again.standing) == (2, NodeStanding.VALIDATED)


def test_late_earlier_request_does_not_undo_a_later_one() -> None:
    later = active(admitted(None, replace(REQUEST, attempt=2)))
    verdict = judge(known=later)
    assert isinstance(verdict, RejectJoin)
    assert verdict.reason is Reason.SUPERSEDED


def test_return_to_the_physical_topology_does_not_reactivate_a_node() -> None:
    """scenarios.md: returns to the physical topology without joining again: not in the logical one."""
    dropped = due_drops([active(admitted())], {"n7": Presence("i1", False)}, False)[0]
    assert dropped.standing is NodeStanding.GONE
    assert due_drops([dropped], {"n7": HERE}, True) == []
    verdict = judge_recovered("n7", "i1", 1, 9, dropped)
    assert isinstance(verdict, RejectJoin)
    assert verdict.reason is Reason.NOT_VALIDATED


def test_recovery_finished_counts_only_for_the_admitted_incarnation() -> None:
    record = admitted()
    for instance, incarnation in (("i1", 2), ("i2", 1)):
        verdict = judge_recovered("n7", instance, incarnation, 7, record)
        assert isinstance(verdict, RejectJoin)
        assert verdict.reason is Reason.SUPERSEDED
    assert isinstance(judge_recovered("n8", "i1", 1, 7, None), RejectJoin)
    assert judge_recovered("n7", "i1", 1, 99, active(record)) == Keep(active(record))


def test_node_that_leaves_before_recovery_is_gone() -> None:
    verdict = judge_leave("n7", "i1", admitted())
    assert isinstance(verdict, WriteRecord)
    assert verdict.record.standing is NodeStanding.GONE
    assert isinstance(judge_leave("n7", "i1", verdict.record), Keep)
    assert isinstance(judge_leave("n7", "i2", admitted()), RejectJoin)


def test_due_drops_have_active_members_that_the_raft_group_has_removed() -> None:
    """Issue 16: a removed member stayed "active voter" and held leases. One that joins again is let in first."""
    voter = admitted(request=replace(REQUEST, role=NodeRole.VOTER))
    removed = frozenset({"n7"})
    assert due_drops([voter], {"n7": HERE}, False, removed) == []
    (dropped,) = due_drops([active(voter)], {"n7": HERE}, False, removed)
    assert (dropped.standing, dropped.reason) == (NodeStanding.GONE, "it was removed from the Raft group")
    assert due_drops([active(admitted())], {"n7": HERE}, False, removed) == [], "a follower of that name"
    assert due_drops([active(voter)], {"n7": HERE}, False) == []


def test_due_drops_over_every_combination() -> None:
    """Standing x presence x how long the leader has looked: dropped exactly where the evidence is there."""
    for standing, presence, unseen_long in product(
        NodeStanding, (None, HERE, Presence("i1", False), Presence("i2", True), Presence("i2", False)), (False, True)
    ):
        record = replace(admitted(), standing=standing)
        physical = {} if presence is None else {"n7": presence}
        lost = presence is not None and presence != HERE
        expected = standing is not NodeStanding.GONE and (lost or (presence is None and unseen_long))
        assert bool(due_drops([record], physical, unseen_long)) is expected, (standing, presence, unseen_long)


def test_records_round_trip_and_damaged_ones_are_rejected() -> None:
    assert ClusterRules.from_bytes(RULES.to_bytes()) == RULES
    record = active(admitted())
    assert NodeRecord.from_bytes(record.to_bytes()) == record
    for packed in (b"", b"\xc1", b"\x91\x01", record.to_bytes()[:-1]):
        with pytest.raises(StoreCorrupt, match="unreadable record of"):
            NodeRecord.from_bytes(packed)
