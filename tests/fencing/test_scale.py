"""Issue 4, "How fast": with 50 holders the messages of a strict write grow linearly, and so does the work."""

from __future__ import annotations

import gc
import timeit
from collections import Counter

import pytest

from palisade.fencing.messages import StageMessage
from palisade.fencing.registry import Holding
from tests.support.fencing_pair import Pair


def messages_per_write(holders: int, writes: int) -> Counter[str]:
    """What is sent for strict writes one after the other, renewals aside."""
    pair = Pair(*(f"n{number}" for number in range(holders)))
    pair.serve()
    sent: Counter[str] = Counter()
    for _ in range(writes):
        pair.write()
        for name in pair.holders:
            stage = pair.stage(name)
            assert isinstance(stage, StageMessage)
            sent["stage"] += 1
            sent["staged"] += 1
        assert pair.release() == pair.leader.lm
        sent["release"] += sum(session.release_due(pair.leader.rr) for session in pair.sessions.values())
    return sent


@pytest.mark.parametrize("holders", [1, 10, 50])
def test_strict_write_costs_three_messages_per_holder(holders: int) -> None:
    assert set(messages_per_write(holders, 4).values()) == {4 * holders}


def test_batch_costs_the_same_as_one_write() -> None:
    pair = Pair(*(f"n{number}" for number in range(50)))
    pair.serve()
    for _ in range(1000):
        pair.write()
    for name in pair.holders:
        assert pair.stage(name) is not None
        assert pair.stage(name) is None
    assert pair.release() == 1000


def work_per_write(holders: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a holder's record is looked at for one write: a count, because times differ from machine to machine."""
    pair = Pair(*(f"n{number}" for number in range(holders)))
    pair.serve()
    looks = 0
    real = Holding.safe_up_to

    def counted(held: Holding, now: float, latest: int) -> int:
        nonlocal looks
        looks += 1
        return real(held, now, latest)

    with monkeypatch.context() as patched:
        patched.setattr(Holding, "safe_up_to", counted)
        pair.write()
        for holder in pair.holders.values():
            pair.leader.staged(holder.me, pair.leader.lm, pair.now)
            pair.leader.advance(pair.now)
    assert pair.leader.rr == pair.leader.lm
    return looks


def test_leader_work_per_write_grows_linearly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if it looks after each acknowledgement, and they come in the worst order."""
    few, many = work_per_write(10, monkeypatch), work_per_write(100, monkeypatch)
    assert many < 12 * few


def test_cost_of_waiting_for_a_dead_node_is_independent_of_waiting_writes() -> None:
    pair = Pair(*(f"n{number}" for number in range(50)))
    pair.serve()
    for _ in range(3000):
        pair.now += 0.001
        pair.write()
        pair.leader.advance(pair.now)
    for held in pair.leader.registry:
        assert len(held.leases) <= 8
    assert len(pair.leader.waits(pair.now)) == 20
    assert pair.leader.waiting == 3000


def test_fifty_holders_cost_the_leader_far_less_than_two_milliseconds() -> None:
    """A bound of 2 ms where about 0.1 ms is usual, the best of many, so that a slow machine does not matter."""
    pair = Pair(*(f"n{number}" for number in range(50)))
    pair.serve()
    everyone = [holder.me for holder in pair.holders.values()]

    def one_write() -> None:
        revision = pair.write()
        for me in everyone:
            pair.leader.staged(me, revision, pair.now)
        assert pair.leader.advance(pair.now) == revision

    gc.collect()
    assert min(timeit.repeat(one_write, number=1, repeat=50)) < 0.002
