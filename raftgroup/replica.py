"""One member of the group, without an event loop: messages, ticks and proposals in; messages and results out.

It combines PySyncObj's rules with screening, pre-vote, quorum lease and incarnations. A message leaves only after the
state that it reports is on disk, except a leader's appends (Raft thesis 10.2.1): an entry is committed only once the
leader's own disk has it, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from palisade.base.log_rate_limit import LogLimit
from palisade.raftgroup.append_replies import AppendReplies
from palisade.raftgroup.durable_outbox import Outbox, Send
from palisade.raftgroup.errors import MembershipRefused, NodeFailed
from palisade.raftgroup.library import Engine
from palisade.raftgroup.membership import MemberIdentity, Membership, MembershipLog
from palisade.raftgroup.membership_entries import membership_entry, membership_in, read_memberships
from palisade.raftgroup.message_screen import (
    Append,
    Extend,
    Matched,
    Missing,
    StaleTerm,
    UnsoundAppend,
    read_batches,
    screen_append,
)
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Clock, Entry, Journal, Random, StateMachine
from palisade.raftgroup.proposals import Proposal, UnappliedEntries, batch_entry
from palisade.raftgroup.quorum_lease import QuorumLease
from palisade.raftgroup.replication import Replication
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.timing import RaftTiming
from palisade.raftgroup.voting import Voting

log = logging.getLogger(__name__)

APPLY_ENTRIES_MAX = 256
"""Maximum entries that a follower applies at once, so that a long catch-up never delays a heartbeat."""


class Replica:
    """`send` delivers a message to a member, best effort, and returns whether there was a connection."""

    def __init__(
        self,
        identity: MemberIdentity,
        membership: Membership,
        *,
        journal: Journal,
        machine: StateMachine,
        clock: Clock,
        random: Random,
        timing: RaftTiming,
        send: Send,
    ) -> None:
        self.identity = identity
        self._own_id = identity.member
        self._journal = journal
        self._machine = machine
        self._clock = clock
        self._timing = timing
        self._send = send
        self._commit_target = 0
        self._led_term = -1
        self.elections_won = self.snapshots_installed = 0
        self._ready_to_lead = False
        self._answering: tuple[str, float] | None = None
        self.unapplied = UnappliedEntries()
        self.installing = False
        """A snapshot is about to become the state: apply nothing, and do not campaign."""
        self._wants_tick = False
        self._lease_until = 0.0
        self._answered_at = 0.0
        self._known: dict[str, str] | None = None
        self.has_belonged = False
        """A membership in the log had this node with this storage."""
        self._memberships = MembershipLog(membership)
        self._log_limit = LogLimit()
        self.lease = QuorumLease(self._own_id, timing.election_timeout_min_s, timing.drift)
        self.outbox = Outbox(journal, send)
        self.engine = Engine(self._own_id, host=self, journal=journal, clock=clock, random=random, timing=timing)
        self.voting = Voting(
            identity,
            self,
            self.engine,
            journal=journal,
            clock=clock,
            timing=timing,
            send=send,
            outbox=self.outbox,
        )
        self.replication = Replication(self.engine, journal, clock, timing, send)
        replies = AppendReplies(
            self.engine,
            journal=journal,
            lease=self.lease,
            replication=self.replication,
            is_known=self.is_known,
            follow_term=self.follow_term,
        )
        self.engine.restore(machine.applied[0])
        read_memberships(journal, self._memberships)
        self._membership_changed()
        if self.is_voter and not self._others:
            self.engine.campaign_at_once()
        self._handlers: dict[int, Callable[[str, Any], None]] = {
            MessageKind.APPEND: self._on_append,
            MessageKind.HEARTBEAT: self._on_heartbeat,
            **replies.handlers,
            **self.voting.handlers,
        }

    # State.

    @property
    def membership(self) -> Membership:
        return self._memberships.current

    @property
    def is_removed(self) -> bool:
        """Whether the newest membership of the log, which may not be committed, has removed this node."""
        return self._own_id in self.membership.removed

    @property
    def role(self) -> RaftRole:
        if self.is_removed:
            return RaftRole.REMOVED
        return self.engine.role if self.is_voter else RaftRole.LEARNER

    @property
    def is_voter(self) -> bool:
        """Whether the group knows this node, with this storage, as a voter."""
        return self._own_id in self.membership.voters and self.is_known(self._own_id, self.identity.incarnation)

    @property
    def leads(self) -> bool:
        """Leader, and everything of earlier terms is applied: proposals and reads may begin."""
        return self.engine.leads and self._ready_to_lead

    @property
    def leading_term(self) -> int:
        return self.engine.term

    @property
    def leader(self) -> str | None:
        """The leader as far as this member knows; None also if the known one was silent so long that it may have
        changed.
        """
        return self.engine.leader if self.engine.leads or self.voting.hears_leader() else None

    def lease_remaining_s(self) -> float:
        if not self.leads:
            return 0.0
        return self.lease.remaining_s(self.membership.voters, self._clock.now())

    def lease_holds(self) -> bool:
        """Whether no other node can lead at this moment. A computed lease stays valid until its end."""
        now = self._clock.now()
        if now >= self._lease_until:
            self._lease_until = now + self.lease_remaining_s()
        return now < self._lease_until

    def membership_settled(self) -> bool:
        """No change of membership waits for its commit."""
        return self._memberships.changed_at <= self.engine.commit_index

    def membership_at(self, index: int) -> Membership:
        return self._memberships.at(index)

    # Input.

    def tick(self) -> None:
        """Do everything due. Raises exceptions of the state machine: the node must stop then."""
        if self._commit_target > self.engine.commit_index:
            self.engine.commit_to(min(self._appliable(), self.engine.applied_index + APPLY_ENTRIES_MAX))
        self.engine.tick()
        self.voting.ticked()
        if self._appliable() > self.engine.commit_index and not self.engine.leads:
            self._wants_tick = True

    def _appliable(self) -> int:
        """Committed, and on this node's own disk: so the state machine's disk is ahead of the journal's only after a
        snapshot, and a crash loses no effective membership."""
        return 0 if self.installing else min(self._commit_target, self._journal.synced_index)

    def wants_tick(self) -> bool:
        """Whether the last tick left work that needs no event."""
        wanted, self._wants_tick = self._wants_tick, False
        return wanted

    def receive(self, member: str, kind: int, body: Any) -> None:
        """A message of the group; an unknown kind is dropped (a later version may send it)."""
        handler = self._handlers.get(kind)
        if handler is not None:
            handler(member, body)

    def propose(self, batch: Sequence[Proposal]) -> None:
        """On a leader: append the commands of `batch` as one entry, and send it. They complete when it is applied; if
        an entry of another leader is applied in its place, they are displaced."""
        stamp = self._machine.stamp(self._clock.now(), self._clock.wall_ns() // 1_000_000)
        commands = [command for proposal in batch for command in proposal.commands]
        entry = self.engine.append(batch_entry(stamp, commands))
        self.unapplied.keep(entry, (stamp, commands), batch)
        self.send_appends()

    def propose_membership(self, membership: Membership) -> Entry:
        """Append a change of membership, and send it. The change is complete once this entry is applied; another entry
        at its index means that it never will be. Raises MembershipRefused while an earlier change is not committed (one
        at a time)."""
        if not self.leads:
            raise MembershipRefused("only a leader that has committed in its term can change the membership")
        if not self.membership_settled():
            raise MembershipRefused("another membership change is in progress; wait until it is committed")
        self._check_answered_by_majority_of(membership)
        entry = self.engine.append(membership_entry(membership))
        self.membership_added(entry.index, entry.command)
        self.send_appends()
        return entry

    def _check_answered_by_majority_of(self, membership: Membership) -> None:
        """A change is effective before it is committed: one that only absent voters could commit would stop the group
        permanently, because the leader's log is then ahead of all others (as etcd's strict-reconfig-check)."""
        now = self._clock.now()
        answered = self.lease.confirmed_at(membership.voters, now)
        if answered is None or now - answered > self._timing.election_timeout_min_s:
            raise MembershipRefused(
                f"the voters would be {', '.join(sorted(membership.voters))}, and no majority of them answers at the "
                "moment: the group would stop. Bring the absent ones back, or remove one of those, first"
            )

    def connected(self, member: str) -> None:
        """Probe the member. If the term is not on disk yet (an only voter), the heartbeat after the sync does that."""
        if self.engine.leads and self.outbox.term_is_durable and member in self._others:
            self.replication.probe(member)

    def establish(self, membership: Membership) -> None:
        """All founding members are known: from now on this node may vote."""
        self._memberships.found(membership)
        self._membership_changed()
        if self.is_voter and not self._others:
            self.engine.campaign_at_once()

    def installed_snapshot(self, index: int, term: int, membership: Membership) -> None:
        """The state machine is now at (index, term), with this membership: the log begins there."""
        if self._journal.term_at(index) == term:
            self._memberships.compact_to(index)
            self._journal.compact_to(index)
        else:
            self._journal.reset(index, term)
            self._memberships.reset(membership)
        self.engine.restore(index)
        self.snapshots_installed += 1
        self.unapplied.replaced_to(index)
        self._commit_target = max(self._commit_target, index)
        self._membership_changed()

    def follower_holds(self, follower: str, index: int) -> None:
        """It has installed a snapshot of `index`, or has committed as much itself."""
        self.engine.deliver_acknowledgement(follower, index)
        self.replication.snapshot_sent(follower, index)

    def compact_log(self, index: int) -> Membership:
        """Drop the log below `index`; returns the membership effective there, to be kept with the base."""
        self._memberships.compact_to(index)
        self._journal.compact_to(index)
        return self._memberships.at(index)

    # Durability: work that waits for the disk.

    @property
    def waits_for_sync(self) -> bool:
        """Whether messages wait for a sync. Also after an install that has synced the journal: they leave with
        `synced`."""
        return bool(self.outbox.held)

    def synced(self) -> None:
        """More of the journal is on disk."""
        if self.outbox.held:
            self.outbox.release()

    # EngineHost: called by the engine.

    def may_campaign(self) -> bool:
        return not self.installing and self.voting.may_campaign()

    def send_vote_request(self, member: str, term: int, last_index: int, last_term: int) -> None:
        self.voting.ask_for_vote(member, term, last_index, last_term)

    def send_vote(self, member: str, term: int) -> None:
        self.voting.give_vote(member, term)

    def resign(self) -> None:
        """On a leader whose hand-over failed: without a lease it could no longer serve fenced reads."""
        if self.engine.leads and self.engine.term == self._led_term and self.lease.is_surrendered:
            log.warning("leadership not handed over, resigning: node=%s term=%d", self._own_id, self.engine.term)
            self.follow_term(self.engine.term + 1)

    def send_appends(self) -> None:
        if self.engine.term != self._led_term:
            self._begin_to_lead()
        if not self.outbox.term_is_durable:
            return
        self.replication.send_to_all(self._others)

    def _begin_to_lead(self) -> None:
        self._led_term = self.engine.term
        self.elections_won += 1
        self._ready_to_lead = False
        self._lease_until = 0.0
        self.lease.begin_term()
        self.replication.begin_term()

    def answer_append(self, member: str, next_index: int, success: bool) -> None:
        if self._answering is None:
            raise NodeFailed("the consensus library answers an append that was not received")
        leader, sent_at = self._answering
        self._answer(leader, next_index, success, sent_at)

    def _answer(self, leader: str, next_index: int, success: bool, sent_at: float) -> None:
        body = [self.engine.term, next_index, success, sent_at, self.identity.incarnation]
        if self.outbox.send_durable(leader, MessageKind.APPEND_REPLY, body):
            self._answered_at = self._clock.now()
        elif self._clock.now() - self._answered_at >= self._timing.heartbeat_s:
            self._send_heartbeat_reply(leader, sent_at)

    def _send_heartbeat_reply(self, leader: str, sent_at: float) -> None:
        """The answer waits for the disk, perhaps for seconds. Without this reply, a leader that needs this follower for
        its majority would step down repeatedly. The reply states that the node follows, and nothing about entries."""
        if self.outbox.term_is_durable:
            self._answered_at = self._clock.now()
            self._send(leader, MessageKind.HEARTBEAT_REPLY, [self.engine.term, sent_at, self.identity.incarnation])

    def apply(self, entry: Entry) -> None:
        index, term = entry.index, entry.term
        batch = self.unapplied.take(entry)
        results: Sequence[Any] = ()
        if batch is not None:
            results = self._machine.apply(index, term, *batch)
        else:
            self._machine.skip(index, term)
            if self.engine.leads and index == self.engine.first_index_of_term:
                self._machine.lead(self._clock.now(), self._clock.wall_ns() // 1_000_000)
                self._ready_to_lead = True
        self.unapplied.applied(index, term, results)

    def membership_added(self, index: int, command: bytes) -> None:
        self._memberships.append(index, membership_in(command))
        self._membership_changed()

    def truncated_from(self, index: int) -> None:
        self.unapplied.truncated_from(index)
        if self._memberships.truncate_from(index):
            self._membership_changed()

    def term_changed(self) -> None:
        self.outbox.term_written()

    def _membership_changed(self) -> None:
        before = self._known
        membership = self.membership
        self._lease_until = 0.0
        others = [member for member in membership.members if member.id != self._own_id]
        self._others = [member.id for member in others]
        self._known = {member.id: member.incarnation for member in membership.members}
        self.has_belonged = self.has_belonged or self._memberships.has_had(self.identity)
        voters = [member for member in self._others if member in membership.voters]
        learners = [member for member in self._others if member in membership.learners]
        self.engine.set_members(voters, learners)
        for member in others:
            if before is not None and before.get(member.id) != member.incarnation:
                self.engine.forget_progress(member.id)
                self.replication.forget(member.id)
                self.lease.forget(member.id)

    def is_known(self, member: str, incarnation: str) -> bool:
        return self._known is not None and self._known.get(member) == incarnation

    # Followers.

    def _record_contact(self, leader: str, term: int) -> None:
        if self.engine.leads and term == self.engine.term:
            raise NodeFailed(f"{leader} leads term {term} as this node does: two leaders in one term")
        self.voting.heard_leader()

    def _on_append(self, leader: str, body: Any) -> None:
        term, commit, prev_index, prev_term, sent_at, packed = body
        entries = [Entry(command, prev_index + 1 + i, at) for i, (command, at) in enumerate(packed)]
        message = Append(term, commit, prev_index, prev_term, entries)
        try:
            batches = read_batches(message)
        except UnsoundAppend as error:
            self._refuse_append(leader, str(error))
            return
        verdict = screen_append(message, self._journal, self.engine.term, self.engine.commit_index)
        if isinstance(verdict, StaleTerm):
            self._answer(leader, 0, False, sent_at)
            return
        self._record_contact(leader, term)
        if isinstance(verdict, Extend):
            self._answering = (leader, sent_at)
            self.engine.deliver_append(leader, verdict.append)
            self._answering = None
            self.unapplied.keep_all(verdict.append.entries, batches[-len(verdict.append.entries) :])
            self._commit_target = max(self._commit_target, verdict.append.commit)
            return
        self.engine.deliver_heartbeat(leader, term)
        if isinstance(verdict, Matched):
            self._commit_target = max(self._commit_target, verdict.commit)
            self._answer(leader, verdict.covers + 1, True, sent_at)
        elif isinstance(verdict, Missing):
            self._answer(leader, verdict.next_index, False, sent_at)

    def _refuse_append(self, leader: str, reason: str) -> None:
        """In the log it would stop this node, again at every start. Nothing is acknowledged, and the message does not
        count as received from the leader: another leader is elected if a majority refuses it."""
        line = self._log_limit.admit(f"dropped an append of {leader}: {reason}", self._clock.now())
        if line is not None:
            log.warning("%s; run the same release of palisade on both nodes", line)

    def _on_heartbeat(self, leader: str, body: Any) -> None:
        term, sent_at = body
        if term >= self.engine.term:
            self._record_contact(leader, term)
            self.engine.deliver_heartbeat(leader, term)
        self.outbox.send_in_term(
            leader, MessageKind.HEARTBEAT_REPLY, [self.engine.term, sent_at, self.identity.incarnation]
        )

    # Leaders.

    def follow_term(self, term: int) -> None:
        self._ready_to_lead = False
        self.engine.adopt_term(term)

    def hand_over(self, target: str) -> bool:
        """Make `target` campaign at once; False unless it holds the whole log and is reachable. The lease ends here,
        for this term."""
        if not self.leads or self.engine.match_index(target) != self._journal.last.index:
            return False
        self.lease.surrender()
        self._lease_until = 0.0
        return self._send(target, MessageKind.CAMPAIGN_NOW, [self.engine.term])
