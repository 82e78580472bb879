"""Which confirmations a read on a leader without its lease may use: those requested after it began (thesis 6.4)."""

from __future__ import annotations

import asyncio
from random import Random

from palisade.raftgroup.leader_rpc import LeaderCalls
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.read_barrier import ReadBarrier
from tests.support.lone_replica import LoneReplica, storage

BEGAN_AFTER_S = 0.01


class OldConfirmation(ReadBarrier):
    """The fault: any earlier confirmation by a majority in this term is accepted."""

    async def _confirmed_here(self) -> int:
        await self._confirmed.until(0.0)
        return self._replica.engine.applied_index


def passes(kind: type[ReadBarrier], *, asked_before_it_began: bool) -> bool:
    """Whether a read passes on the answer to a heartbeat. The leader gave up its lease in a hand-over that failed."""
    leader = LoneReplica()
    term = leader.leads()
    if not leader.replica.hand_over("n2"):
        raise AssertionError("n2 holds the whole log")
    before = leader.clock.time
    leader.waits(BEGAN_AFTER_S)
    sent_at = before if asked_before_it_began else leader.clock.time

    async def reads() -> bool:
        barrier = kind(leader.replica, leader.clock, LeaderCalls(lambda *_: False, Random(0)), lambda: None)
        read = asyncio.create_task(barrier.wait(5.0))
        await asyncio.sleep(0)
        if read.done():
            raise AssertionError("it did not wait for anybody")
        leader.gets("n2", MessageKind.HEARTBEAT_REPLY, term, sent_at, storage("n2"))
        barrier.turned()
        await asyncio.wait([read], timeout=0.01)
        read.cancel()
        return read.done() and not read.cancelled()

    return asyncio.run(reads())


def test_majority_asked_after_the_read_began_confirms_it() -> None:
    assert passes(ReadBarrier, asked_before_it_began=False)


def test_majority_asked_before_the_read_began_does_not_confirm_it() -> None:
    """Another leader may have committed a write in between."""
    assert not passes(ReadBarrier, asked_before_it_began=True)


def test_leader_that_confirms_an_old_read_is_detected_here() -> None:
    assert passes(OldConfirmation, asked_before_it_began=True)
