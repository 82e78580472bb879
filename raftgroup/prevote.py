"""Pre-vote: a node campaigns only when a majority would vote for it (Raft thesis 9.6).

So a node that returns from isolation, or that was removed, raises nobody's term. PySyncObj has no pre-vote; its engine
asks `connectedToAnyone` right before each election, and there it is told to wait until `PreVote.won`.
"""

from __future__ import annotations

from dataclasses import dataclass

from palisade.raftgroup.quorum_lease import majority
from palisade.raftgroup.timing import RaftTiming


@dataclass(frozen=True, slots=True)
class Candidacy:
    """What a candidate shows: the term that it would start, and the end of its log."""

    term: int
    last_index: int
    last_term: int


def log_is_current(candidacy: Candidacy, last_index: int, last_term: int) -> bool:
    """Whether the candidate's log is at least as far as this one (Raft 5.4.1)."""
    return (candidacy.last_term, candidacy.last_index) >= (last_term, last_index)


SHORT_ATTEMPTS = 5
PATIENCE_MAX = 8
"""In election timeouts."""


def election_patience_s(attempt: int, timing: RaftTiming) -> tuple[float, float]:
    """From when until when a candidate that was not elected tries again; `attempt` counts the elections that this node
    had a part in since it last heard a leader, from 1.

    Two candidates that split the votes have waited a whole election timeout already, and nobody leads whom they could
    disturb: so the first retry comes soon, spread over several round trips. Later ones come as late as any election,
    and where that does not help either, later and later: votes have to be on disk before they are sent, and an fsync
    may take seconds. Who has voted waits as long as its candidate, or it would end the election in which it votes.
    """
    shortest, longest = timing.election_timeout_min_s, timing.election_timeout_max_s
    if attempt > SHORT_ATTEMPTS:
        times = min(2 ** (attempt - SHORT_ATTEMPTS), PATIENCE_MAX)
        return times * shortest, times * longest
    soonest = min(2 * timing.heartbeat_s * 2 ** (attempt - 1), shortest)
    return soonest, min(3 * soonest, longest)


class StandBack:
    """Who would vote for another candidate lets it go first for a moment: two campaigns that overlap split the votes.

    `moment_s`: how long. Not again before `rest_s` after that began, or a candidate that can't win would keep one that
    can from trying.
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
    """One round of asking at a time; a round that finds no majority is given up after a while and asked again."""

    def __init__(self, own_id: str) -> None:
        self._own_id = own_id
        self._term = 0
        self._granted: set[str] = set()
        self._retry_at = 0.0

    def begin(self, term: int, now: float, patience_s: float) -> bool:
        """Start a round for `term`, unless one is still young; True when its questions are to be sent."""
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
        """What was granted is used, or is no longer true: a leader was heard."""
        if self._term:
            self._term, self._granted = 0, set()
