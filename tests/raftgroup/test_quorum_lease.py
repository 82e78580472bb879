"""The quorum lease: design.md, "Revision-bound leases"; Raft thesis 6.4.1."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.raftgroup.quorum_lease import QuorumLease, majority, may_vote, quorum_sent_at

THREE = ("n1", "n2", "n3")


def lease(drift: float = 0.0) -> QuorumLease:
    made = QuorumLease("n1", 1.0, drift)
    made.begin_term()
    return made


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_majority_is_more_than_half(voters: int, needed: int) -> None:
    assert majority(voters) == needed


def test_lease_does_not_hold_before_a_majority_has_answered() -> None:
    assert lease().remaining_s(THREE, 10.0) == 0.0
    assert lease().confirmed_at(THREE, 10.0) is None


def test_lease_lasts_from_the_sending_of_the_majoritys_append() -> None:
    held = lease()
    held.acknowledge("n2", 9.5)
    assert held.remaining_s(THREE, 10.0) == pytest.approx(0.5)


def test_lease_is_shortened_by_the_clock_drift() -> None:
    held = lease(drift=0.01)
    held.acknowledge("n2", 10.0)
    assert held.remaining_s(THREE, 10.0) == pytest.approx(0.99)


def test_late_answer_to_an_older_append_does_not_shorten_the_lease() -> None:
    held = lease()
    held.acknowledge("n2", 9.9)
    held.acknowledge("n2", 9.1)
    assert held.remaining_s(THREE, 10.0) == pytest.approx(0.9)


def test_lease_of_five_depends_on_the_second_other_voter() -> None:
    held = lease()
    for voter, sent_at in (("n2", 9.9), ("n3", 9.5), ("n4", 9.2)):
        held.acknowledge(voter, sent_at)
    assert held.confirmed_at(("n1", "n2", "n3", "n4", "n5"), 10.0) == 9.5


def test_learner_does_not_count() -> None:
    held = lease()
    held.acknowledge("learner", 10.0)
    assert held.remaining_s(THREE, 10.0) == 0.0


def test_lease_of_a_single_voter_always_holds() -> None:
    assert lease().remaining_s(("n1",), 123.0) == pytest.approx(1.0)


def test_answers_of_an_earlier_term_are_dropped() -> None:
    held = lease()
    held.acknowledge("n2", 10.0)
    held.begin_term()
    assert held.remaining_s(THREE, 10.0) == 0.0


def test_replaced_member_does_not_count() -> None:
    held = lease()
    held.acknowledge("n2", 10.0)
    held.forget("n2")
    assert held.remaining_s(THREE, 10.0) == 0.0


def test_surrendered_lease_stays_so_for_the_term() -> None:
    held = lease()
    held.acknowledge("n2", 10.0)
    held.surrender()
    held.acknowledge("n3", 10.1)
    assert held.remaining_s(THREE, 10.1) == 0.0
    assert held.confirmed_at(THREE, 10.1) == 10.1, "a round of heartbeats still proves leadership"
    held.begin_term()
    held.acknowledge("n2", 11.0)
    assert held.remaining_s(THREE, 11.0) == pytest.approx(1.0)


def test_lease_is_surrendered_before_the_first_election() -> None:
    held = QuorumLease("n1", 1.0, 0.0)
    held.acknowledge("n2", 10.0)
    assert held.remaining_s(THREE, 10.0) == 0.0


@pytest.mark.parametrize(
    ("started", "heard", "now", "may"),
    [
        (0.0, None, 0.99, False),
        (0.0, None, 1.0, True),
        (0.0, 5.0, 5.99, False),
        (0.0, 5.0, 6.0, True),
        (5.5, 5.0, 6.0, False),
    ],
)
def test_voter_refuses_votes_after_its_start_and_after_a_leader_message(
    started: float, heard: float | None, now: float, may: bool
) -> None:
    assert may_vote(now, started=started, heard_leader=heard, election_timeout_min_s=1.0) is may


@given(
    st.integers(1, 7),
    st.dictionaries(st.integers(1, 7), st.floats(0.0, 10.0), max_size=7),
    st.floats(0.0, 0.4),
)
def test_no_majority_may_vote_while_the_lease_holds(voters: int, heard: dict[int, float], drift: float) -> None:
    """Every voter that answered received from the leader when the append was sent or later, and refuses for a timeout
    of its own clock, which runs too fast by the drift at most.
    """
    members = [f"n{number}" for number in range(1, voters + 1)]
    acknowledged = {f"n{number}": at for number, at in heard.items() if 1 < number <= voters}
    held = QuorumLease("n1", 1.0, drift)
    held.begin_term()
    for voter, sent_at in acknowledged.items():
        held.acknowledge(voter, sent_at)
    now = 10.0
    if held.remaining_s(members, now) <= 0:
        return
    free = [
        member
        for member in members[1:]
        if member not in acknowledged or (now - acknowledged[member]) / (1 - drift) >= 1.0
    ]
    assert len(free) < majority(voters)


@given(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=7))
def test_quorum_sent_at_equals_a_count(times: list[float | None]) -> None:
    members = [f"n{number}" for number in range(len(times))]
    acknowledged = {member: at for member, at in zip(members, times, strict=True) if at is not None}
    found = quorum_sent_at(members, "somebody else", 0.0, acknowledged)
    needed = majority(len(times))
    naive = [at for at in acknowledged.values() if sum(other >= at for other in acknowledged.values()) >= needed]
    assert found == (max(naive) if naive else None)
