"""The leader's ear: what the followers' answers to its appends and heartbeats are taken for.

An acknowledgement of what the leader itself has not on disk yet is held back until it has (`guard.screen_reply`), and
judged again then: its sender may have been removed or replaced meanwhile, and this node may lead no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftgroup.engine import Engine
from raftgroup.guard import Acknowledge, Drop, Hold, Reply, Resend, StepDown, screen_reply
from raftgroup.messages import Kind
from raftgroup.ports import Journal
from raftgroup.quorum_lease import QuorumLease
from raftgroup.replication import Replication

_Held = tuple[str, Reply, float, str]


class Replies:
    """`is_known` says whether that storage is the one by which the group knows that member."""

    def __init__(
        self,
        engine: Engine,
        *,
        journal: Journal,
        lease: QuorumLease,
        replication: Replication,
        is_known: Callable[[str, str], bool],
        follow_term: Callable[[int], None],
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._lease = lease
        self._replication = replication
        self._is_known = is_known
        self._follow_term = follow_term
        self._held: list[_Held] = []
        self.handlers: dict[int, Callable[[str, Any], None]] = {
            Kind.APPEND_REPLY: self._on_append_reply,
            Kind.HEARTBEAT_REPLY: self._on_heartbeat_reply,
        }

    @property
    def wait_for_sync(self) -> bool:
        return bool(self._held)

    def end_sync(self) -> None:
        """More of the log is on the leader's own disk."""
        held, self._held = self._held, []
        for member, reply, sent_at, incarnation in held:
            self._judge(member, reply, sent_at, incarnation)

    def _on_append_reply(self, follower: str, body: Any) -> None:
        term, next_index, success, sent_at, incarnation = body
        self._judge(follower, Reply(term, next_index, success), sent_at, incarnation)

    def _judge(self, follower: str, reply: Reply, sent_at: float, incarnation: str) -> None:
        if not self._engine.leads or not self._is_known(follower, incarnation):
            return
        verdict = screen_reply(
            reply,
            term=self._engine.term,
            match=self._engine.match_index(follower),
            last_index=self._journal.last.index,
            synced_index=self._journal.synced_index,
        )
        if isinstance(verdict, StepDown):
            self._follow_term(verdict.term)
            return
        if isinstance(verdict, Drop):
            return
        self._confirmed(follower, sent_at)
        if isinstance(verdict, Hold):
            self._held.append((follower, reply, sent_at, incarnation))
        elif isinstance(verdict, Acknowledge):
            self._engine.deliver_acknowledgement(follower, verdict.match)
            self._replication.acknowledged(follower, verdict.match)
        elif isinstance(verdict, Resend):
            self._replication.resend(follower, verdict.next_index, sent_at)

    def _on_heartbeat_reply(self, follower: str, body: Any) -> None:
        term, sent_at, incarnation = body
        if not self._engine.leads or not self._is_known(follower, incarnation):
            return
        if term > self._engine.term:
            self._follow_term(term)
        elif term == self._engine.term:
            self._confirmed(follower, sent_at)

    def _confirmed(self, follower: str, sent_at: float) -> None:
        self._lease.acknowledge(follower, sent_at)
        self._engine.deliver_sign_of_life(follower)
