"""Three ways to ask the same: the verdict on a revision, how far all is safe, and when it will be (F4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palisade.fencing.messages import FencedMessage
from palisade.fencing.registry import Holding, Registration
from palisade.fencing.verdict import Judgement, VerdictOutcome, judge, overall
from tests.support.fencing_pair import T_PROCEED, TIMING, Pair

REVISIONS = 8

steps = st.lists(
    st.tuples(
        st.sampled_from(["grant", "commit", "ack", "promise", "old promise", "wait"]),
        st.floats(0, 2, allow_nan=False),
        st.integers(0, REVISIONS),
    ),
    max_size=40,
)


class Plain:
    """The rule of the design: the barrier of each revision is the last grant before it was committed."""

    def __init__(self, now: float) -> None:
        self.last: float | None = now
        self.barrier: dict[int, float | None] = {}
        self.staged = 0
        self.latest = 0

    def commit(self) -> None:
        self.latest += 1
        self.barrier[self.latest] = self.last

    def safe(self, revision: int, now: float) -> bool:
        barrier = self.barrier[revision]
        return self.staged >= revision or barrier is None or now >= barrier + T_PROCEED


@given(steps)
def test_lease_record_agrees_with_a_barrier_per_revision(plan: list[tuple[str, float, int]]) -> None:
    now = 10.0
    held, plain = Holding(Registration("n1", "v", TIMING.fence_s), TIMING), Plain(now)
    held.term_began(now)
    for step, pause, number in plan:
        now += pause
        if step == "grant":
            held.grant(now, now, plain.latest)
            plain.last = now
        elif step == "commit":
            plain.commit()
        elif step == "ack" and number <= plain.latest:
            held.acknowledge(number)
            plain.staged = max(plain.staged, number)
        elif step == "promise":
            assert held.promise(FencedMessage(1, now), now)
            plain.last = None
            plain.barrier = dict.fromkeys(plain.barrier)
        elif step == "old promise" and held.asked > 0:
            held.promise(FencedMessage(1, held.asked - 1), now)
        safe_up_to = held.safe_up_to(now, plain.latest)
        for revision in range(1, plain.latest + 1):
            judged = judge(held.facts(revision), revision, now)
            assert (judged.judgement is not Judgement.PENDING) == plain.safe(revision, now)
            # The record moves in order: a safe revision behind one that is not waits with it.
            if revision <= safe_up_to:
                assert plain.safe(revision, now)
        if safe_up_to < plain.latest:
            assert not plain.safe(safe_up_to + 1, now)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 2), st.none() | st.floats(0, 9)), max_size=6), st.floats(0, 20))
def test_the_outcome_follows_from_the_holders(holders: list[tuple[bool, int, float | None]], now: float) -> None:
    held = []
    for number, (fences, staged, granted_at) in enumerate(holders):
        one = Holding(Registration(f"n{number}", "v", TIMING.fence_s, fences), TIMING)
        one.acknowledge(staged)
        if granted_at is not None:
            one.leases.append((0, granted_at))
        held.append(one)
    verdict = overall((judge(one.facts(1), 1, now) for one in held), 1, now, overdue_at=10.0)
    assert (verdict.outcome is VerdictOutcome.PROCEED) == (not verdict.waits_for)
    if verdict.until is not None:
        later = overall((judge(one.facts(1), 1, verdict.until) for one in held), 1, verdict.until, overdue_at=10.0)
        assert later.outcome is VerdictOutcome.PROCEED
    if verdict.outcome is VerdictOutcome.FAIL:
        assert any(not one.registration.fences and one.staged == 0 for one in held)
        assert now >= 10.0
    assert len(verdict.reasons) == len(verdict.waits_for)


@given(
    st.lists(st.tuples(st.sampled_from(["write", "renew", "stage"]), st.integers(0, 2), st.floats(0, 1)), max_size=30),
    st.booleans(),
)
def test_next_time_agrees_with_the_verdict(plan: list[tuple[str, int, float]], incapable: bool) -> None:
    pair = Pair("n0", "n1", "n2")
    pair.serve()
    if incapable:
        pair.leader.registry.register(Registration("old", "v", TIMING.fence_s, fences=False), pair.now)
    for step, number, pause in plan:
        pair.now += pause
        if step == "write":
            pair.write()
        elif step == "renew":
            pair.renew(f"n{number}", deliver=False)
        else:
            pair.stage(f"n{number}")
        verdict, due = pair.leader.verdict(pair.now), pair.leader.next_time(pair.now)
        if verdict is None:
            assert due is None
        elif verdict.outcome is VerdictOutcome.PROCEED:
            assert due == pair.now
        else:
            assert due == verdict.until
        before = pair.leader.rr
        assert (pair.leader.advance(pair.now) is not None) == (due == pair.now), (before, due)
