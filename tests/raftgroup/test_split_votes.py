"""Two candidates that split the votes retry soon: writes continue within 2.5 s of a kill (issue 2, "How fast")."""

from __future__ import annotations

import pytest

from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.prevote import election_patience_s
from palisade.raftgroup.timing import RaftTiming
from tests.support.lone_replica import LoneReplica

TIMING = RaftTiming()


def test_retries_come_soon_then_as_late_as_elections_then_later() -> None:
    """Votes must be on disk before they are sent, and an fsync may take seconds."""
    assert election_patience_s(1, TIMING) == pytest.approx((0.2, 0.6))
    assert election_patience_s(2, TIMING) == pytest.approx((0.4, 1.2))
    assert [election_patience_s(attempt, TIMING) for attempt in (4, 5)] == [(1.0, 1.5)] * 2
    assert [election_patience_s(attempt, TIMING)[0] for attempt in (6, 7, 8, 9, 99)] == [2.0, 4.0, 8.0, 8.0, 8.0]
    assert election_patience_s(99, TIMING)[1] == 12.0


def pre_votes_asked(candidate: LoneReplica) -> list[int]:
    return [body[0] for _, kind, body in candidate.sent if kind == MessageKind.PRE_VOTE]


def test_unelected_candidate_retries_before_another_election_timeout() -> None:
    candidate = LoneReplica()
    term = candidate.campaigns()
    candidate.waits(0.61)
    candidate.tick()
    assert pre_votes_asked(candidate)[-1] == term + 1


def test_retry_is_delayed_so_that_two_candidates_separate() -> None:
    candidate = LoneReplica()
    term = candidate.campaigns()
    candidate.waits(0.19)
    candidate.tick()
    assert pre_votes_asked(candidate)[-1] == term


def test_leader_message_resets_the_attempts() -> None:
    candidate = LoneReplica()
    term = candidate.campaigns()
    candidate.gets("n2", MessageKind.HEARTBEAT, term, 0.0)
    candidate.settle()
    term = candidate.campaigns()
    candidate.waits(0.61)
    candidate.tick()
    assert pre_votes_asked(candidate)[-1] == term + 1
