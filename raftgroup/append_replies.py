"""The leader's handling of answers to appends and heartbeats.

`screen_reply` (pure) accepts an answer only in the term in which it was given (pysyncobj.md, fault 2), and never moves
nextIndex below matchIndex + 1 or past the end of the log (fault 3, RATIS-1074). An unknown match of a follower is a
value of its own (`None`), which cannot be mistaken for an index.

An acknowledgement counts at once, also of an entry that is not on the leader's own disk yet: the commit rule ignores
such an entry (`library.py`), whatever the followers have acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palisade.raftgroup.library import Engine
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Journal
from palisade.raftgroup.quorum_lease import QuorumLease
from palisade.raftgroup.replication import Replication


@dataclass(frozen=True, slots=True)
class AppendReply:
    """An answer to an append: `success` acknowledges all below `next_index`; otherwise it requests that index."""

    term: int
    next_index: int
    success: bool


@dataclass(frozen=True, slots=True)
class DropReply:
    reason: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """The sender is in a later term."""

    term: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    match: int


@dataclass(frozen=True, slots=True)
class Resend:
    """Send from this index on."""

    next_index: int


ReplyVerdict = DropReply | StepDown | Acknowledge | Resend


def screen_reply(reply: AppendReply, *, term: int, match: int | None, last_index: int) -> ReplyVerdict:
    """The consequence of an answer for the leader of `term` whose log ends at `last_index`.

    `match` is the index up to which the follower is known to hold the log, None while unknown.
    """
    if reply.term > term:
        return StepDown(reply.term)
    if reply.term < term:
        return DropReply(f"an answer of term {reply.term} in term {term}")
    if not reply.success:
        floor = 1 if match is None else match + 1
        return Resend(min(max(reply.next_index, floor), last_index + 1))
    acknowledged = reply.next_index - 1
    if acknowledged > last_index:
        return DropReply(f"acknowledges index {acknowledged} of a log that ends at {last_index}")
    return Acknowledge(acknowledged)


class AppendReplies:
    """`is_known`: whether the group knows that member with that storage."""

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
        self.handlers: dict[int, Callable[[str, Any], None]] = {
            MessageKind.APPEND_REPLY: self._on_append_reply,
            MessageKind.HEARTBEAT_REPLY: self._on_heartbeat_reply,
        }

    def _on_append_reply(self, follower: str, body: Any) -> None:
        term, next_index, success, sent_at, incarnation = body
        if not self._engine.leads or not self._is_known(follower, incarnation):
            return
        verdict = screen_reply(
            AppendReply(term, next_index, success),
            term=self._engine.term,
            match=self._engine.match_index(follower),
            last_index=self._journal.last.index,
        )
        if isinstance(verdict, StepDown):
            self._follow_term(verdict.term)
            return
        if isinstance(verdict, DropReply):
            return
        self._confirmed(follower, sent_at)
        if isinstance(verdict, Acknowledge):
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
        self._engine.deliver_contact(follower)
