"""The leader's quorum lease: how long the leader can be sure that no other node leads.

A voter that has received from a leader refuses every vote and pre-vote for the minimum election timeout after that
(`may_vote`). It received no earlier than the leader *sent* the append that it acknowledges. Thus while less than that
timeout has passed since the majority-th latest send time, no majority can have elected another leader (Raft thesis
6.4.1). Clocks may drift apart by the bound rho; the lease is shorter by that much.

A leader that hands over first gives up its lease for the rest of its term: the voters ignore their promise for that
campaign, which may arrive late. Thus if no node takes over, its term must end as well (`Replica.resign`): otherwise it
would continue to lead without ever holding a lease again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def majority(voters: int) -> int:
    """The size of a majority of `voters`."""
    return voters // 2 + 1


def quorum_sent_at(voters: Iterable[str], own_id: str, now: float, acknowledged: Mapping[str, float]) -> float | None:
    """The latest time such that a majority has acknowledged an append sent then or later; None without a majority.

    The leader itself, if a voter, counts with `now`.
    """
    times = [now if voter == own_id else acknowledged.get(voter) for voter in voters]
    known = sorted((time for time in times if time is not None), reverse=True)
    needed = majority(len(times))
    return known[needed - 1] if len(known) >= needed else None


def may_vote(now: float, *, started: float, heard_leader: float | None, election_timeout_min_s: float) -> bool:
    """Whether a voter may grant a vote or a pre-vote: not for a minimum election timeout after it started, because it
    may have forgotten a leader, nor after it received from one (pysyncobj.md, fault 7)."""
    quiet_since = started if heard_leader is None else max(started, heard_leader)
    return now - quiet_since >= election_timeout_min_s


class QuorumLease:
    """The acknowledgements of the voters in this term, by the leader's own clock (seconds)."""

    def __init__(self, own_id: str, election_timeout_min_s: float, drift: float) -> None:
        self._own_id = own_id
        self._duration_s = election_timeout_min_s * (1 - drift)
        self._acknowledged: dict[str, float] = {}
        self._surrendered = True

    def begin_term(self) -> None:
        """This node was elected: earlier acknowledgements do not count."""
        self._acknowledged.clear()
        self._surrendered = False

    def surrender(self) -> None:
        self._surrendered = True

    @property
    def is_surrendered(self) -> bool:
        return self._surrendered

    def acknowledge(self, voter: str, sent_at: float) -> None:
        """`voter` answered an append of this term that was sent at `sent_at`."""
        self._acknowledged[voter] = max(sent_at, self._acknowledged.get(voter, sent_at))

    def forget(self, voter: str) -> None:
        """`voter` was removed or has a new incarnation."""
        self._acknowledged.pop(voter, None)

    def confirmed_at(self, voters: Iterable[str], now: float) -> float | None:
        """A majority followed this leader at that time or later, in this term."""
        return quorum_sent_at(voters, self._own_id, now, self._acknowledged)

    def remaining_s(self, voters: Iterable[str], now: float) -> float:
        """The remaining time of the lease; 0 or less if it does not hold."""
        confirmed_at = self.confirmed_at(voters, now)
        if self._surrendered or confirmed_at is None:
            return 0.0
        return confirmed_at + self._duration_s - now
