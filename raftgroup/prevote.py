"""Pre-vote: a node campaigns only if a majority would vote for it (Raft thesis 9.6).

Thus a node that returns from isolation, or was removed, does not raise the term of others. PySyncObj has no pre-vote;
its engine asks `connectedToAnyone` right before each election, and gets False until `PreVote.won`.
"""

from __future__ import annotations

from dataclasses import dataclass

from palisade.raftgroup.quorum_lease import majority
from palisade.raftgroup.timing import RaftTiming


@dataclass(frozen=True, slots=True)
class Candidacy:
    """The data of a candidate: the term that it would start, and the end of its log."""

    term: int
    last_index: int
    last_term: int


def log_is_current(candidacy: Candidacy, last_index: int, last_term: int) -> bool:
    """Whether the candidate's log is at least as up to date as this one (Raft 5.4.1)."""
    return (candidacy.last_term, candidacy.last_index) >= (last_term, last_index)


SHORT_ATTEMPTS = 5
PATIENCE_MAX = 8
"""In election timeouts."""


def election_patience_s(attempt: int, timing: RaftTiming) -> tuple[float, float]:
    """The earliest and latest time of the next attempt of a candidate that was not elected. `attempt` counts, from 1,
    the elections in which this node took part since it last received from a leader.

    Two candidates that split the votes have already waited a whole election timeout, and there is no leader to disturb:
    so the first retry comes soon, spread over several round trips. Later ones use the timeouts of any election, and
    then increasing ones: votes must be on disk before they are sent, and an fsync may take seconds. A voter waits as
    long as its candidate; otherwise it would end the election in which it votes.
    """
    shortest, longest = timing.election_timeout_min_s, timing.election_timeout_max_s
    if attempt > SHORT_ATTEMPTS:
        times = min(2 ** (attempt - SHORT_ATTEMPTS), PATIENCE_MAX)
        return times * shortest, times * longest
    soonest = min(2 * timing.heartbeat_s * 2 ** (attempt - 1), shortest)
    return soonest, min(3 * soonest, longest)


class StandBack:
    """A node that would vote for another candidate delays its own campaign: overlapping campaigns split the votes.

    `moment_s`: the delay. It is repeated at the earliest `rest_s` after its beginning, or a candidate that cannot win
    would keep one that can from campaigning.
    """

    def __init__(self, moment_s: float, rest_s: float) -> None:
        self._moment_s = moment_s
        self._rest_s = rest_s
        self._began_at: float | None = None

    def begin(self, now: float) -> None:
        if self._began_at is None or now - self._began_at >= self._rest_s:
            self._began_at = now

    def holds(self, now: float) -> bool:
        return self._began_at is not None and now - self._began_at < self._moment_s


class PreVote:
    """One round at a time; a round without a majority is abandoned after a while and repeated."""

    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._term = 0
        self._granted: set[str] = set()
        self._retry_at = 0.0

    def begin(self, term: int, now: float, patience_s: float) -> bool:
        """Start a round for `term`, unless a recent one is in progress; True if its requests are to be sent."""
        if term == self._term and now < self._retry_at:
            return False
        self._term, self._granted, self._retry_at = term, {self._own_id}, now + patience_s
        return True

    def is_under_way(self, now: float) -> bool:
        return self._term > 0 and now < self._retry_at

    def grant(self, voter: str, term: int) -> None:
        """`voter` would vote in `term`; each voter counts once (pysyncobj.md, fault 14)."""
        if term == self._term:
            self._granted.add(voter)

    def won(self, term: int, voters: frozenset[str]) -> bool:
        return term == self._term and len(self._granted & voters) >= majority(len(voters))

    def end(self) -> None:
        """The grants are used, or outdated: a message from a leader arrived."""
        if self._term:
            self._term, self._granted = 0, set()
