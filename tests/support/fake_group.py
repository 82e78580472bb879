"""A group of one that needs no disk and no network: commands submitted in one turn of the loop are applied in the next.

It has the interface of `raftgroup.group.Group` (palisade/service/ports.py) and can lose its leader or its majority, so
that the APIs above it can be tested without a cluster. Time is handed in.
"""

from __future__ import annotations

import asyncio

from palisade.metastore.limits import Limits
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.state_machine import MetaStore
from palisade.raftgroup.errors import NO_MAJORITY, MembershipRefused, NodeFailed, OutcomeUnknown, Unavailable
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.proposals import Applied, AwaitedProposal, Proposal, end_applied
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.status import GroupStatus, MemberStatus
from tests.support.hand_clock import Clock

TERM = 2

HOST = "127.77.0.1"
"""Of the member. `palisade up` listens on 127.0.0.1 with these ports: clients of a test followed to its cluster, wrote
there, and the test failed."""


class FakeGroup:
    """`leading` False: no leader is known. `majority` False: proposals are accepted, and never complete in time.
    `held`: submitted commands wait until `release`."""

    def __init__(self, store: MetaStore, clock: Clock | None = None, member: str = "n1") -> None:
        self.store = store
        self.clock = clock or Clock()
        self.member = member
        self.leading = True
        self._leader = member
        self.majority = True
        self.lease_valid = True
        self.held = False
        self.failed: NodeFailed | None = None
        self.submitted = 0
        self.transfers: list[str | None] = []
        self.refusals: dict[str, str] = {}
        self.joins = 0
        """The generation of the log that it is receiving."""
        self._waiting: list[Proposal] = []
        self._due = False
        addresses = {"peer": f"{HOST}:7501", "http": f"{HOST}:7401", "stream": f"{HOST}:7601"}
        self._members = Membership((Member(member, MemberRole.VOTER, "fake", addresses),))
        self._index = store.applied[0]
        store.lead(self.clock.now(), 0)

    def led_by(self, leader: str | None) -> None:
        """From now on it knows this leader, or none; requests are executed nevertheless, as if forwarded."""
        self.leading = leader is not None
        self._leader = leader or self.member

    def belongs_to(self, members: Membership) -> None:
        self._members = members

    # Proposals and reads.

    def check_alive(self) -> None:
        if self.failed is not None:
            raise self.failed

    def submit(self, proposal: Proposal) -> None:
        self.submitted += proposal.weight
        loop = asyncio.get_running_loop()
        if not self.leading:
            loop.call_later(proposal.timeout_s, proposal.end, Unavailable(NO_MAJORITY))
        elif not self.majority:
            loop.call_later(
                proposal.timeout_s, proposal.end, OutcomeUnknown("the deadline passed after the command was proposed")
            )
        else:
            self._waiting.append(proposal)
            if not self._due and not self.held:
                self._due = True
                loop.call_soon(self._apply)

    async def propose(self, command: bytes, *, timeout_s: float = 5.0) -> Applied:
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self.submit(AwaitedProposal([command], future, timeout_s))
        return await future

    def release(self) -> None:
        """Apply the held commands."""
        self.held = False
        self._apply()

    def _apply(self) -> None:
        self._due = False
        batch, self._waiting = self._waiting, []
        outcomes = self.apply([command for proposal in batch for command in proposal.commands])
        end_applied(batch, self._index, TERM, [outcome.result for outcome in outcomes])

    def apply(self, commands: list[bytes]) -> list[Applied]:
        """Apply one batch at once."""
        self._index += 1
        index = self._index
        stamp = self.store.stamp(self.clock.now(), int(self.clock.now() * 1000))
        return [Applied(index, TERM, [result]) for result in self.store.apply(index, TERM, stamp, commands)]

    def try_read_barrier(self) -> bool:
        return self.leading and self.majority and self.lease_valid

    async def read_barrier(self, *, timeout_s: float = 5.0) -> int:
        if not (self.leading and self.majority):
            await asyncio.sleep(timeout_s)
            raise Unavailable(NO_MAJORITY)
        return self._index

    # Membership.

    async def add(self, member: Member) -> None:
        self._members = self._members.with_member(member)

    async def promote(self, member_id: str) -> None:
        self._members = self._members.promoted(member_id)

    async def remove(self, member_id: str) -> None:
        self._members = self._members.without(member_id)

    async def transfer(self, target: str | None) -> str:
        self.transfers.append(target)
        if target is not None and not self._members.is_voter(target):
            raise MembershipRefused(f"{target} can't take over: it is no voter")
        return target or self.member

    # State.

    @property
    def leader(self) -> str | None:
        return self._leader if self.leading else None

    @property
    def leads(self) -> bool:
        return self.leading and self._leader == self.member

    async def until_leads(self) -> None:
        while not self.leads:  # noqa: ASYNC110
            await asyncio.sleep(0.005)

    @property
    def term(self) -> int:
        return TERM

    @property
    def role(self) -> RaftRole:
        return RaftRole.LEADER if self.leads else RaftRole.FOLLOWER

    @property
    def members(self) -> Membership:
        return self._members

    @property
    def generation(self) -> int:
        return max(self._members.generation, self.joins)

    def status(self) -> GroupStatus:
        members = tuple(MemberStatus(each, True, self._index, False) for each in self._members.members)
        return GroupStatus(
            member=self.member,
            incarnation="fake",
            role=self.role,
            term=TERM,
            leader=self.leader,
            commit_index=self._index,
            applied_index=self._index,
            first_index=0,
            last_index=self._index,
            synced_index=self._index,
            lease_remaining_ms=900,
            members=members,
            refusals=self.refusals,
        )


def fake_group(limits: Limits | None = None, clock: Clock | None = None) -> FakeGroup:
    """A group with an empty store in memory."""
    return FakeGroup(MetaStore(MemoryMap(), limits), clock)
