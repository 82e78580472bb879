"""Each proposal has exactly one of three outcomes (pysyncobj.md, fault 13)."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from palisade.raftgroup.errors import OutcomeUnknown, RaftError, Unavailable
from palisade.raftgroup.forwarding import Forwarding
from palisade.raftgroup.proposals import (
    BATCH_BYTES_MAX,
    BATCH_COMMANDS_MAX,
    Applied,
    CallbackProposal,
    Proposal,
    Proposals,
    end_late,
)
from tests.support.hand_clock import Clock


def add(queue: Proposals, ends: list[Applied | RaftError], timeout_s: float = 10.0, command: bytes = b"x") -> None:
    """Proposed at time 0."""
    queue.add(CallbackProposal([command], ends.append, timeout_s), 0.0)


def test_proposal_ends_once() -> None:
    ends: list[Applied | RaftError] = []
    one = CallbackProposal([b"x"], ends.append, 10.0)
    one.end(Applied(1, 1, [None]))
    one.end(Unavailable("too late"))
    end_late(one)
    assert ends == [Applied(1, 1, [None])]


def test_queued_proposal_is_refused_and_sent_one_unknown_at_its_deadline() -> None:
    queue, waiting, sent = Proposals(), [], []
    add(queue, sent)
    queue.take()
    add(queue, waiting)
    queue.expire(9.99)
    assert not sent
    assert not waiting
    queue.expire(10.0)
    assert [type(end) for end in sent] == [OutcomeUnknown]
    assert [type(end) for end in waiting] == [Unavailable]


def test_proposals_that_ended_without_a_leader_are_not_kept() -> None:
    """The queue kept their commands for as long as there was no leader: retries filled the memory."""
    queue, ends = Proposals(), []
    for number in range(100):
        add(queue, ends, 1.0 + number % 2)
        queue.expire(float(number))
    queue.expire(200.0)
    assert (len(ends), len(queue)) == (100, 0)


def test_expired_proposal_is_not_taken() -> None:
    queue, ends = Proposals(), []
    add(queue, ends, 1.0)
    queue.expire(2.0)
    assert queue.take() == []


def test_long_deadline_delays_no_other() -> None:
    queue, short = Proposals(), []
    add(queue, [], 1000.0)
    add(queue, short, 1.0)
    queue.expire(1.0)
    assert len(short) == 1


def test_refused_proposals_return_to_the_front_in_order() -> None:
    queue = Proposals()
    for name in (b"a", b"b", b"c"):
        add(queue, [], command=name)
    batch = queue.take()
    add(queue, [], command=b"d")
    queue.put_back(batch)
    assert [each.commands for each in queue.take()] == [[b"a"], [b"b"], [b"c"], [b"d"]]


def test_batch_is_bounded_in_number_and_size() -> None:
    queue = Proposals()
    for _ in range(BATCH_COMMANDS_MAX + 1):
        add(queue, [])
    assert [len(queue.take()), len(queue.take())] == [BATCH_COMMANDS_MAX, 1]
    for _ in range(3):
        add(queue, [], command=bytes(BATCH_BYTES_MAX // 2 + 1))
    assert [len(queue.take()), len(queue.take())] == [2, 1]


def test_failing_listener_affects_no_other_proposal() -> None:
    def broken(_: object) -> None:
        raise ZeroDivisionError

    CallbackProposal([b"x"], broken, 1.0).end(Applied(1, 1, [None]))


def test_stop_refuses_queued_proposals_and_reports_unknown_for_others() -> None:
    queue, waiting, sent = Proposals(), [], []
    add(queue, sent)
    queue.take()
    add(queue, waiting)
    queue.fail(lambda: Unavailable("stopping"))
    assert [type(end) for end in sent] == [OutcomeUnknown]
    assert [str(end) for end in waiting] == ["stopping"]
    assert not queue


class Life(RuleBasedStateMachine):
    """All possible events of proposals, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Proposals()
        self.now = 0.0
        self.ends: dict[int, list[Applied | RaftError]] = {}
        self.out: list[list[Proposal]] = []
        self.logged: set[int] = set()

    @rule(patience=st.sampled_from([0.5, 5.0, 50.0]))
    def propose(self, patience: float) -> None:
        ends: list[Applied | RaftError] = []
        self.ends[len(self.ends)] = ends
        self.queue.add(CallbackProposal([str(len(self.ends) - 1).encode()], ends.append, patience), self.now)

    @rule()
    def take(self) -> None:
        batch = self.queue.take()
        if batch:
            self.out.append(batch)
            self.logged |= {int(each.commands[0]) for each in batch}

    @precondition(lambda self: self.out)
    @rule(which=st.randoms())
    def refuse(self, which: object) -> None:
        batch = self.out.pop()
        self.logged -= {int(each.commands[0]) for each in batch}
        self.queue.put_back(batch)

    @precondition(lambda self: self.out)
    @rule()
    def apply(self) -> None:
        for each in self.out.pop(0):
            each.end(Applied(1, 1, [None]))

    @rule(seconds=st.floats(0.0, 20.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.queue.expire(self.now)

    @invariant()
    def each_ends_once_and_what_is_in_a_log_is_never_refused(self) -> None:
        for number, ends in self.ends.items():
            assert len(ends) <= 1
            if ends and number in self.logged:
                assert not isinstance(ends[0], Unavailable)

    def teardown(self) -> None:
        self.queue.expire(self.now + 1000.0)
        assert all(len(ends) == 1 for ends in self.ends.values())


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, deadline=None)


@given(st.lists(st.floats(0, 100), max_size=20), st.floats(0, 100))
def test_exactly_the_overdue_proposals_end(deadlines: list[float], now: float) -> None:
    queue, ended = Proposals(), []
    for deadline in deadlines:
        queue.add(CallbackProposal([b"x"], lambda _, at=deadline: ended.append(at), deadline), 0.0)
    queue.expire(now)
    assert sorted(ended) == sorted(deadline for deadline in deadlines if deadline <= now)


def test_forwarded_proposal_has_the_same_weight_at_the_leader() -> None:
    """Otherwise an entry would have as many puts as fit in its bytes: a series of hundreds is one command (R5)."""
    sent: list[Any] = []

    def send(_member: str, _kind: int, body: Any) -> bool:
        sent.extend(body)
        return True

    here, there = Proposals(), Proposals()
    for _ in range(3):
        here.add(CallbackProposal([b"series"], lambda _end: None, 10.0, BATCH_COMMANDS_MAX // 2 + 1), 0.0)
    follower = Forwarding(here, Clock(), send, Random(1))
    follower.forward("n1", here.take())
    follower.forward("n1", here.take())
    Forwarding(there, Clock(), send, Random(2)).take("n2", sent, leads=True)
    assert [len(there.take()) for _ in range(2)] == [2, 1]


def test_successively_refused_batches_keep_their_order() -> None:
    """A deposed leader with two entries in flight receives the outcome of the older one first. The older one must still
    be first in line, or a key ends with the value of a put before the last one.
    """
    queue = Proposals()
    batches = []
    for name in (b"a", b"b", b"c"):
        add(queue, [], command=name)
        batches.append(queue.take())
    add(queue, [], command=b"d")
    for batch in batches:
        queue.put_back(batch)
    assert [proposal.commands for proposal in queue.take()] == [[b"a"], [b"b"], [b"c"], [b"d"]]


def test_proposals_refused_by_the_leader_are_queued_again_in_order() -> None:
    sent: list[Any] = []

    def send(_member: str, _kind: int, body: Any) -> bool:
        sent.extend(body)
        return True

    queue = Proposals()
    for name in (b"a", b"b", b"c"):
        add(queue, [], command=name)
    follower = Forwarding(queue, Clock(), send, Random(1))
    follower.forward("n1", queue.take())
    add(queue, [], command=b"d")
    follower.answered("n1", [[number, 1, 0, 0, []] for number, _, _ in sent])
    assert [proposal.commands for proposal in queue.take()] == [[b"a"], [b"b"], [b"c"], [b"d"]]
