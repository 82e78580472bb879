"""One `Replica` in isolation: the test controls its clock, inspects its messages, and plays its peers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from random import Random
from typing import Any

from palisade.raftgroup.errors import RaftError
from palisade.raftgroup.membership import Member, MemberIdentity, MemberRole, Membership
from palisade.raftgroup.memory_journal import MemoryJournal
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import BATCH
from palisade.raftgroup.proposals import Applied, CallbackProposal
from palisade.raftgroup.replica import Replica
from palisade.raftgroup.timing import RaftTiming
from tests.support.hand_clock import Clock
from tests.support.register_machine import RegisterMachine


def storage(member: str) -> str:
    """The incarnation of a member's first storage."""
    return f"{member}-storage"


def voters(*members: str) -> Membership:
    known = (Member(member, MemberRole.VOTER, storage(member), {"peer": member}) for member in members)
    return Membership(tuple(known), version=1, generation=1)


class LoneReplica:
    """`n1` of `members`. `sent`: its messages. `crash` discards unsynced data and starts it again."""

    def __init__(
        self, members: Iterable[str] = ("n1", "n2", "n3"), *, membership: Membership | None = None, seed: int = 1
    ) -> None:
        self.clock = Clock()
        self.journal = MemoryJournal()
        self.machine = RegisterMachine()
        self.membership = membership or voters(*members)
        self.timing = RaftTiming()
        self.sent: list[tuple[str, int, Any]] = []
        self.unreachable: set[str] = set()
        self.seed = seed
        self.start()

    def start(self) -> None:
        self.replica = Replica(
            MemberIdentity("n1", storage("n1")),
            self.membership,
            journal=self.journal,
            machine=self.machine,
            clock=self.clock,
            random=Random(self.seed),
            timing=self.timing,
            send=self._send,
        )

    def crash(self) -> None:
        self.journal.crash()
        self.machine.crash()
        self.sent.clear()
        self.start()

    def _send(self, member: str, kind: int, body: Any) -> bool:
        if member in self.unreachable:
            return False
        self.sent.append((member, int(kind), body))
        return True

    # Events.

    def gets(self, member: str, kind: MessageKind, *body: Any) -> None:
        self.replica.receive(member, kind, list(body))

    def gets_append(
        self, leader: str, term: int, entries: Iterable[tuple[int, int]], *, prev: tuple[int, int], commit: int = 0
    ) -> None:
        """`entries` are (index, term), and follow `prev`; their writes are named after them."""
        packed = [[write(index, at), at] for index, at in entries]
        self.gets(leader, MessageKind.APPEND, term, commit, *prev, self.clock.time, packed)

    def tick(self) -> None:
        self.replica.tick()

    def sync(self) -> None:
        asyncio.run(self.journal.sync())
        self.replica.synced()

    def settle(self) -> None:
        """Turn and sync until nothing more is to be done."""
        self.tick()
        while self.journal.dirty or self.replica.waits_for_sync or self.replica.wants_tick():
            self.sync()
            self.tick()

    def waits(self, seconds: float) -> None:
        self.clock.time += seconds

    def campaigns(self, grants: Iterable[str] = ("n2",)) -> int:
        """Time passes and it requests votes, having won the pre-vote; returns the term."""
        self.waits(self.timing.election_timeout_max_s + 0.01)
        term = self.replica.engine.term + 1
        self.tick()
        for member in grants:
            self.gets(member, MessageKind.PRE_VOTE_REPLY, term, True, term - 1, storage(member))
        self.settle()
        return term

    def leads(self, voter: str = "n2") -> int:
        """It is elected, and its first entry is committed; returns the term."""
        term = self.campaigns([voter])
        self.gets(voter, MessageKind.VOTE, term, True, storage(voter))
        self.settle()
        self.acknowledges(voter)
        self.settle()
        if not self.replica.leads:
            raise AssertionError("it was not elected")
        return term

    def acknowledges(self, follower: str, next_index: int | None = None, *, term: int | None = None) -> None:
        """`follower` holds everything below `next_index`, all of the log by default."""
        self.gets(
            follower,
            MessageKind.APPEND_REPLY,
            self.replica.engine.term if term is None else term,
            self.journal.last.index + 1 if next_index is None else next_index,
            True,
            self.clock.time,
            storage(follower),
        )

    def proposes(self, *commands: bytes) -> list[Applied | RaftError]:
        """Returns the list that its end is put into."""
        ends: list[Applied | RaftError] = []
        self.replica.propose([CallbackProposal(commands, ends.append, math.inf)])
        self.tick()
        return ends

    # State.

    def said(self, kind: MessageKind, to: str | None = None) -> list[Any]:
        """The bodies of the messages of that kind; removes them."""
        bodies = [body for member, each, body in self.sent if each == kind and to in (None, member)]
        self.sent = [each for each in self.sent if not (each[1] == kind and to in (None, each[0]))]
        return bodies

    @property
    def log(self) -> list[tuple[int, int]]:
        """(index, term) of every entry after the base."""
        entries = self.journal.slice(self.journal.first.index + 1, self.journal.last.index + 1)
        return [(entry.index, entry.term) for entry in entries]


def write(index: int, term: int) -> bytes:
    import msgpack

    from tests.support.register_machine import put

    packed: bytes = msgpack.packb([0, [put(f"{index}.{term}", "a", f"{index}.{term}")]])
    return BATCH + packed
