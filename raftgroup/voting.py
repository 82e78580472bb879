"""One member's part in elections: as a voter, and as a candidate.

A voter keeps its promise to the last leader from which it received: no vote and no pre-vote for a minimum election
timeout (`quorum_lease.may_vote`). A candidate asks for pre-votes first. The one exception to both is a hand-over: the
leader has given up its lease for its whole term, and requested its successor to campaign for exactly the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from palisade.raftgroup.durable_outbox import Outbox, Send
from palisade.raftgroup.library import Engine
from palisade.raftgroup.membership import MemberIdentity, Membership
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Clock, Journal
from palisade.raftgroup.prevote import (
    SHORT_ATTEMPTS,
    Candidacy,
    PreVote,
    StandBack,
    election_patience_s,
    log_is_current,
)
from palisade.raftgroup.quorum_lease import may_vote
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.timing import RaftTiming


class Electorate(Protocol):
    """The other members, as this member knows them."""

    @property
    def membership(self) -> Membership: ...
    @property
    def is_voter(self) -> bool: ...
    def is_known(self, member: str, incarnation: str) -> bool:
        """Whether the group has that member with that storage."""
        ...

    def follow_term(self, term: int) -> None:
        """Abandon this node's role in its term, for a later one."""
        ...


class Voting:
    """Of one member, over its `engine`."""

    def __init__(
        self,
        identity: MemberIdentity,
        electorate: Electorate,
        engine: Engine,
        *,
        journal: Journal,
        clock: Clock,
        timing: RaftTiming,
        send: Send,
        outbox: Outbox,
    ) -> None:
        self._engine = engine
        self._own_id = identity.member
        self._incarnation = identity.incarnation
        self._electorate = electorate
        self._journal = journal
        self._clock = clock
        self._timing = timing
        self._send = send
        self._outbox = outbox
        self._started = clock.now()
        self._heard_leader: float | None = None
        self._handover_term = -1
        self._pre_vote = PreVote(identity.member)
        self._stand_back = StandBack(2 * timing.heartbeat_s, timing.election_timeout_min_s)
        self._votes: set[tuple[int, str]] = set()
        self._took_part_in = -1
        self._asked = False
        self._attempts = 0
        self.elections_started = 0
        self.handlers: dict[int, Callable[[str, Any], None]] = {
            MessageKind.PRE_VOTE: self._on_pre_vote,
            MessageKind.PRE_VOTE_REPLY: self._on_pre_vote_reply,
            MessageKind.REQUEST_VOTE: self._on_request_vote,
            MessageKind.VOTE: self._on_vote,
            MessageKind.CAMPAIGN_NOW: self._on_campaign_now,
        }

    def heard_leader(self) -> None:
        """Earlier grants are outdated, and the promise to this leader begins anew."""
        self._heard_leader = self._clock.now()
        self._attempts = 0
        self._pre_vote.end()

    def hears_leader(self) -> bool:
        """Whether it received from the leader within the time until a campaign. The library itself forgets a leader
        only when it campaigns, and without a majority for pre-votes it never does."""
        heard = self._heard_leader
        return heard is not None and self._clock.now() - heard <= self._timing.election_timeout_max_s

    # The candidate.

    def may_campaign(self) -> bool:
        """The election timeout has passed: whether an election may start now. Asks for pre-votes if needed."""
        if not self._electorate.is_voter:
            return False
        term = self._engine.term + 1
        others = self._electorate.membership.voters - {self._own_id}
        if not others or term == self._handover_term:
            return True
        if not self._is_free() or self._stand_back.holds(self._clock.now()):
            return False
        if not self._outbox.term_is_durable:
            # The vote in this term is still being written. A campaign would end the term in which it is to count.
            return False
        if self._pre_vote.won(term, self._electorate.membership.voters):
            self._pre_vote.end()
            return True
        if self._pre_vote.begin(term, self._clock.now(), 2 * self._timing.heartbeat_s):
            last = self._journal.last
            for voter in sorted(others):
                self._send(voter, MessageKind.PRE_VOTE, [term, last.index, last.term])
        return False

    def ticked(self) -> None:
        """After each tick: an election may have to be repeated after its requests have had time to be answered."""
        if self._engine.role is not RaftRole.CANDIDATE:
            return
        if self._takes_part_anew():
            self._asked = False
            self.elections_started += 1
        if not self._asked:
            self._asked = self._outbox.term_is_durable
            self._engine.retry_election(*election_patience_s(self._attempts, self._timing))

    def _takes_part_anew(self) -> bool:
        """Whether this is the first action of this node in an election, as a candidate or as a voter."""
        if self._engine.term == self._took_part_in:
            return False
        self._took_part_in = self._engine.term
        self._attempts += 1
        return True

    def ask_for_vote(self, member: str, term: int, last_index: int, last_term: int) -> None:
        handover = term == self._handover_term
        self._outbox.send_durable(member, MessageKind.REQUEST_VOTE, [term, last_index, last_term, handover])

    def _on_campaign_now(self, leader: str, body: Any) -> None:
        (term,) = body
        if term == self._engine.term and leader == self._engine.leader and self._electorate.is_voter:
            self._handover_term = term + 1
            self._engine.campaign_now(leader, term)

    def _on_pre_vote_reply(self, voter: str, body: Any) -> None:
        term, granted, voters_term, incarnation = body
        if not self._electorate.is_known(voter, incarnation) or self._engine.leads:
            return
        if granted:
            self._pre_vote.grant(voter, term)
        elif voters_term > self._engine.term and self._is_free():
            self._engine.adopt_term(voters_term)

    def _on_vote(self, voter: str, body: Any) -> None:
        """Each voter counts once in a term (pysyncobj.md, fault 14)."""
        term, granted, incarnation = body
        is_voter = voter in self._electorate.membership.voters
        if not is_voter or not self._electorate.is_known(voter, incarnation):
            return
        if not granted:
            if term > self._engine.term:
                self._electorate.follow_term(term)
            return
        if term == self._engine.term and (term, voter) not in self._votes:
            self._votes = {vote for vote in self._votes if vote[0] == term} | {(term, voter)}
            self._engine.deliver_vote(voter, term)

    # The voter.

    def _is_free(self) -> bool:
        """Whether this node's promise to the last leader is over. A node that is not a voter by its own log votes too:
        the entry that made it one may not have reached it yet, and only the candidate's membership determines whether
        the vote of this storage counts (Raft thesis 4.2.2)."""
        if self._engine.leads:
            return False
        return may_vote(
            self._clock.now(),
            started=self._started,
            heard_leader=self._heard_leader,
            election_timeout_min_s=self._timing.election_timeout_min_s,
        )

    def give_vote(self, candidate: str, term: int) -> None:
        if self._takes_part_anew() and self._attempts > SHORT_ATTEMPTS:
            self._engine.retry_election(*election_patience_s(self._attempts, self._timing))
        self._outbox.send_durable(candidate, MessageKind.VOTE, [term, True, self._incarnation])

    def _on_pre_vote(self, candidate: str, body: Any) -> None:
        candidacy = Candidacy(*body)
        if candidate in self._electorate.membership.removed:
            return
        last = self._journal.last
        granted = (
            self._is_free() and candidacy.term > self._engine.term and log_is_current(candidacy, last.index, last.term)
        )
        if granted and not self._goes_before(candidate, candidacy):
            self._stand_back.begin(self._clock.now())
        self._send(
            candidate, MessageKind.PRE_VOTE_REPLY, [candidacy.term, granted, self._engine.term, self._incarnation]
        )

    def _goes_before(self, candidate: str, candidacy: Candidacy) -> bool:
        """Of two candidates that request votes from each other at the same time, one yields: the one with the shorter
        log, or the lesser id.
        """
        last = self._journal.last
        own, other = (last.term, last.index, self._own_id), (candidacy.last_term, candidacy.last_index, candidate)
        return self._pre_vote.is_under_way(self._clock.now()) and own > other

    def _on_request_vote(self, candidate: str, body: Any) -> None:
        term, last_index, last_term, handover = body
        if candidate in self._electorate.membership.removed:
            return
        if not handover and not self._is_free():
            return
        if term < self._engine.term:
            self._outbox.send_durable(candidate, MessageKind.VOTE, [self._engine.term, False, self._incarnation])
        elif term == self._engine.term and self._engine.vote == candidate:
            self.give_vote(candidate, term)
        else:
            self._engine.deliver_vote_request(candidate, term, last_index, last_term)
