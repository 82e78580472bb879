"""Read barriers: when a read of the local state is linearizable, on any member.

The leader needs proof that no other node led when the read began: the quorum lease, or a majority that acknowledges an
append sent after that (Raft thesis 6.4). Another member needs that proof from the leader, with the leader's applied
index, and then its own state machine at that index.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from palisade.raftgroup.errors import NO_MAJORITY, NodeFailed, NotLeader, RaftError, Unavailable
from palisade.raftgroup.leader_rpc import LeaderCalls
from palisade.raftgroup.ports import Clock
from palisade.raftgroup.replica import Replica

_RETRY_S = 0.05
_ANSWER_S = 1.0


class Waiters:
    """Futures that wait until a number is reached: a time that a majority confirmed, or an applied index."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    async def until(self, at_least: float) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._heap, (at_least, next(self._order), future))
        await future

    def reached(self, value: float) -> None:
        while self._heap and self._heap[0][0] <= value:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        waiting, self._heap = self._heap, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)


class ReadBarrier:
    """`wake` requests a turn of the group."""

    def __init__(self, replica: Replica, clock: Clock, calls: LeaderCalls, wake: Callable[[], None]) -> None:
        self._replica = replica
        self._clock = clock
        self._calls = calls
        self._wake = wake
        self._confirmed = Waiters()
        self._applied = Waiters()
        self._round: asyncio.Task[int] | None = None

    def passes(self) -> bool:
        """Whether a read is linearizable now, without waiting."""
        return self._replica.leads and self._replica.lease_holds()

    async def wait(self, timeout_s: float) -> int:
        """A lower bound of the local state's index, once a read of it is linearizable.

        Raises Unavailable if no majority confirms a leader in time.
        """
        deadline = self._clock.now() + timeout_s
        while True:
            if self.passes():
                return self._replica.engine.applied_index
            left = deadline - self._clock.now()
            try:
                async with asyncio.timeout(max(left, 0.001)):
                    return await (self._confirmed_here() if self._replica.leads else self._confirmed_elsewhere())
            except TimeoutError:
                raise Unavailable(NO_MAJORITY) from None
            except NodeFailed:
                raise
            except RaftError as error:
                if left <= _RETRY_S:
                    late = isinstance(error, NotLeader)
                    raise Unavailable(NO_MAJORITY if late else f"{error}; nothing was done, retry") from error
                await asyncio.sleep(_RETRY_S)

    async def _confirmed_here(self) -> int:
        """A majority answers an append that is sent after this call began."""
        index = self._replica.engine.applied_index
        self._replica.replication.beat_now()
        self._wake()
        await self._confirmed.until(self._clock.now())
        return index

    async def _confirmed_elsewhere(self) -> int:
        index = await self._ask_leader()
        if self._replica.engine.applied_index < index:
            await self._applied.until(index)
        return index

    async def _ask_leader(self) -> int:
        """Reads that begin in one turn share one request; a request already in progress began too early for a later
        read.
        """
        if self._round is None:
            self._round = asyncio.get_running_loop().create_task(self._ask())
            self._round.add_done_callback(_consume_error)
        return await asyncio.shield(self._round)

    async def _ask(self) -> int:
        """A request can be lost silently, if a newer connection replaces the old one (a paused node that continues): so
        it is repeated."""
        self._round = None
        try:
            async with asyncio.timeout(_ANSWER_S):
                index: int = await self._calls.call(self._replica.leader, "read_index", [], repeatable=True)
        except TimeoutError:
            raise Unavailable(f"the leader did not answer within {_ANSWER_S:g} s: retry") from None
        return index

    # Called by the group.

    def turned(self) -> None:
        """After each turn: entries may be applied, a majority may have confirmed, leadership may be lost."""
        self._applied.reached(self._replica.engine.applied_index)
        if not self._confirmed:
            return
        if not self._replica.leads:
            self._confirmed.fail(NotLeader(self._replica.leader))
            return
        confirmed_at = self._replica.lease.confirmed_at(self._replica.membership.voters, self._clock.now())
        if confirmed_at is not None:
            self._confirmed.reached(confirmed_at)

    def fail(self, error: RaftError) -> None:
        self._confirmed.fail(error)
        self._applied.fail(error)


def _consume_error(question: asyncio.Task[int]) -> None:
    """All readers may have given up before the answer; its error is not logged then."""
    if not question.cancelled():
        question.exception()
