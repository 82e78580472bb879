"""Changes of membership and leadership, requested at any member and executed by the leader.

One change at a time: the log refuses a second one until the first is committed (`Replica.propose_membership`). A
leader never removes itself; it hands over first, and its successor removes it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from palisade.raftgroup.errors import MembershipRefused, NotLeader, OutcomeUnknown, RaftError, Unavailable
from palisade.raftgroup.leader_rpc import LeaderCalls, error_kind
from palisade.raftgroup.membership import Member, MemberRole, Membership
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Journal, Peers
from palisade.raftgroup.replica import Replica

CAUGHT_UP_ENTRIES = 64
"""A learner this close to the commit index may be promoted: it will hold the rest before the promotion is effective."""
_COMMIT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
"""Longer than any request takes at the leader: after that the leader is considered stalled."""
_FIRST_ANSWERS_S = 1.0
_READY_TIMEOUT_S = 5.0


class Administration:
    """`turn` runs a turn of the group at once; `read_index` waits for a read barrier."""

    def __init__(
        self,
        own_id: str,
        replica: Replica,
        *,
        journal: Journal,
        peers: Peers,
        calls: LeaderCalls,
        turn: Callable[[], None],
        read_index: Callable[[], Awaitable[int]],
        handover_timeout_s: float,
    ) -> None:
        self._own_id = own_id
        self._replica = replica
        self._journal = journal
        self._peers = peers
        self._calls = calls
        self._turn = turn
        self._handover_timeout_s = handover_timeout_s
        self._turns: list[asyncio.Future[None]] = []
        self.handing_over = False
        self._actions: dict[str, Callable[..., Awaitable[Any]]] = {
            "read_index": read_index,
            "add": self._add,
            "promote": self._promote,
            "remove": self._remove,
            "transfer": self._transfer,
        }

    async def at_leader(self, name: str, arguments: list[Any]) -> Any:
        """Raises OutcomeUnknown if the asked leader does not answer, whether or not its connection is open."""
        await self._ready_or_not_leading()
        if self._replica.leads:
            return await self._actions[name](*arguments)
        return await self._ask(self._replica.leader, name, arguments)

    async def _ask(self, leader: str | None, name: str, arguments: list[Any]) -> Any:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._calls.call(leader, name, arguments)
        except TimeoutError:
            raise OutcomeUnknown(
                f"the leader {leader} did not answer the request {name} within {ANSWER_TIMEOUT_S:g} s and may still "
                "execute it: check the members and the leader before you retry"
            ) from None

    async def answer(self, member: str, number: int, name: str, arguments: list[Any]) -> None:
        """Execute another member's request, and send it the result."""
        kind: str | None = None
        value: Any = None
        try:
            await self._ready_or_not_leading()
            if not self._replica.leads:
                raise NotLeader(self._replica.engine.leader)
            if name not in self._actions:
                raise MembershipRefused(f"the leader's version does not know the request {name!r}")
            value = await self._actions[name](*arguments)
        except RaftError as error:
            kind, value = error_kind(error), str(error)
        except (TypeError, ValueError) as error:
            kind, value = "refused", f"malformed request {name}: {error}"
        self._peers.send(member, MessageKind.RESPONSE, [number, kind, value])

    def turned(self) -> None:
        """After each turn of the group."""
        turns, self._turns = self._turns, []
        for turned in turns:
            if not turned.done():
                turned.set_result(None)

    def promote_learners(self) -> None:
        """Promote one learner that is to become a voter and has caught up."""
        if not self._replica.leads or not self._replica.membership_settled():
            return
        membership = self._replica.membership
        for member in membership.members:
            if member.becomes_voter and member.id in membership.learners and self._caught_up(member.id):
                self._replica.propose_membership(membership.promoted(member.id))
                self._turn()
                return

    async def _add(self, wire: list[Any]) -> None:
        member = Member.from_wire(wire)
        known = self._replica.membership.get(member.id)
        if member.id == self._own_id and (known is None or known.incarnation != member.incarnation):
            raise MembershipRefused(f"{member.id} is the leader: transfer leadership before you replace its storage")
        await self._change(lambda membership: membership.with_member(member))

    async def _promote(self, member_id: str) -> None:
        self._replica.membership.promoted(member_id)
        if not self._caught_up(member_id):
            raise MembershipRefused(f"{self._progress_of(member_id)} promote it once it has caught up")
        await self._change(lambda membership: membership.promoted(member_id))

    async def _remove(self, member_id: str) -> None:
        self._replica.membership.without(member_id)
        if member_id == self._own_id:
            await self._transfer(None)
            await self._ask(self._replica.engine.leader, "remove", [member_id])
        else:
            next_index = self._replica.engine.next_index(member_id)
            await self._change(lambda membership: membership.without(member_id))
            self._replica.replication.send_last(member_id, next_index)

    async def _change(self, change: Callable[[Membership], Membership]) -> None:
        await self._wait_for_voters(change(self._replica.membership))
        membership = change(self._replica.membership)
        entry = self._replica.propose_membership(membership)
        self._turn()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_COMMIT_TIMEOUT_S):
                await self._until(lambda: self._replica.engine.applied_index >= entry.index)
                term = self._journal.term_at(entry.index)
                if term == entry.term:
                    return
                if term is not None:
                    raise NotLeader(self._replica.engine.leader)
        raise OutcomeUnknown(
            "the membership change was proposed and not committed in time: list the members before you retry"
        )

    async def _wait_for_voters(self, membership: Membership) -> None:
        """A new leader may not have received messages yet from the voters that must commit the change: wait briefly."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_ANSWERS_S):
                await self._until(lambda: self._replica.lease.confirmed_at(membership.voters, 0.0) is not None)

    def _caught_up(self, member_id: str) -> bool:
        match = self._replica.engine.match_index(member_id)
        return match is not None and match >= self._replica.engine.commit_index - CAUGHT_UP_ENTRIES

    def _progress_of(self, member_id: str) -> str:
        """Why it has not caught up, as the beginning of a sentence that ends with the remedy."""
        match = self._replica.engine.match_index(member_id)
        if match is not None:
            return f"{member_id} holds the log up to {match} of {self._journal.last.index}:"
        if member_id not in self._peers.connected():
            connected = f"not connected to the leader {self._own_id}"
            return f"{member_id} is {connected}, so its log is not known: start its node, and"
        return (
            f"{member_id} has not reported its last log index yet (that of the leader is {self._journal.last.index}):"
        )

    async def _transfer(self, wanted: str | None) -> str:
        candidates = (self._replica.membership.voters & self._peers.connected()) - {self._own_id}
        if wanted == self._own_id:
            return wanted
        target = wanted or max(
            sorted(candidates), key=lambda each: self._replica.engine.match_index(each) or 0, default=None
        )
        if target is None or target not in candidates:
            raise MembershipRefused(f"{self._unable(wanted)}; other connected voters: {listed(candidates)}")
        self.handing_over = True
        try:
            async with asyncio.timeout(self._handover_timeout_s):
                await self._until(lambda: not self._replica.leads or self._replica.hand_over(target))
                await self._until(lambda: not self._replica.engine.leads and self._replica.engine.leader is not None)
        except TimeoutError:
            raise Unavailable(f"{target} did not take over in time: an election may be running; retry") from None
        finally:
            self.handing_over = False
            self._replica.resign()
        return self._replica.engine.leader or target

    def _unable(self, wanted: str | None) -> str:
        """Why `wanted` cannot take over. Raises MembershipRefused if it is not a member."""
        if wanted is None:
            return "no member can take over"
        role = self._replica.membership.require(wanted).role
        if role is MemberRole.LEARNER:
            return f"{wanted} can't take over: it is a learner; promote it first"
        return f"{wanted} can't take over: it is not connected to the leader {self._own_id}"

    async def _ready_or_not_leading(self) -> None:
        """A new leader may not have committed anything in its term; that takes one round, or ends its leadership."""
        try:
            async with asyncio.timeout(_READY_TIMEOUT_S):
                await self._until(lambda: self._replica.leads or not self._replica.engine.leads)
        except TimeoutError:
            raise Unavailable(
                f"{self._own_id} was elected and could not commit anything within {_READY_TIMEOUT_S:g} s; nothing was "
                "changed, try again"
            ) from None

    async def _until(self, condition: Callable[[], bool]) -> None:
        """Checks after each turn of the group; there is one at least every 50 ms."""
        while not condition():
            turned: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._turns.append(turned)
            await turned


def listed(members: Iterable[str]) -> str:
    return ", ".join(sorted(members)) or "none"
