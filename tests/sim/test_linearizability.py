"""The checker itself (issue 5): known good and bad histories, 10,000 operations, every tiny history by brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, permutations
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.executed import executed
from tests.sim.linearizability import Model, Op, Verdict, check
from tests.sim.models import Read, Register, Swap, Write

GOOD, BAD, OPEN = Verdict.LINEARIZABLE, Verdict.VIOLATION, Verdict.GAVE_UP
HISTORIES = {
    "nothing": (GOOD, []),
    "one after the other": (GOOD, [Op(0, 1, Write(1)), Op(2, 3, Read(), 1)]),
    "a stale read": (BAD, [Op(0, 1, Write(1)), Op(2, 3, Write(2)), Op(4, 5, Read(), 1)]),
    "a read beside a write sees either": (GOOD, [Op(0, 5, Write(1)), Op(1, 2, Read(), None), Op(3, 4, Read(), 1)]),
    "new then old on two nodes": (BAD, [Op(0, 5, Write(1)), Op(1, 2, Read(), 1, "n1"), Op(3, 4, Read(), None, "n2")]),
    "a value from nowhere": (BAD, [Op(0, 1, Write(1)), Op(2, 3, Read(), 7)]),
    "a read from the future": (BAD, [Op(0, 1, Read(), 1), Op(2, 3, Write(1))]),
    "a lost update": (BAD, [Op(0, 1, Write(1)), Op(2, 5, Swap(1, 2), True), Op(3, 6, Swap(1, 3), True)]),
    "one of two swaps wins": (GOOD, [Op(0, 1, Write(1)), Op(2, 5, Swap(1, 2), True), Op(3, 6, Swap(1, 3), False)]),
    "an unknown write that took effect late": (
        GOOD,
        [Op(0, None, Write(1)), Op(1, 2, Read(), None), Op(3, 4, Write(2)), Op(5, 6, Read(), 1)],
    ),
    "an unknown write that never did": (GOOD, [Op(0, None, Write(1)), Op(1, 2, Write(2)), Op(3, 4, Read(), 2)]),
    "an unknown write that took effect twice": (
        BAD,
        [Op(0, None, Write(1)), Op(1, 2, Read(), 1), Op(3, 4, Write(2)), Op(5, 6, Read(), 1)],
    ),
    "an unknown write before it was asked": (BAD, [Op(0, 1, Read(), 1), Op(2, None, Write(1))]),
    "a write that took effect twice": (
        BAD,
        [Op(0, 1, Write(1)), Op(2, 3, Write(2)), Op(4, 5, Read(), 2), Op(6, 7, Read(), 1)],
    ),
    "two readers disagree about the order of two writes": (
        BAD,
        [
            *(Op(0, 20, Write(1)), Op(1, 21, Write(2))),
            *(Op(2, 3, Read(), 1), Op(4, 5, Read(), 2), Op(6, 7, Read(), 1)),
        ],
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_known_histories_of_a_register(name: str) -> None:
    verdict, ops = HISTORIES[name]
    assert check(Register(), ops).verdict is verdict


def test_violation_is_explained_with_what_could_not_be_placed() -> None:
    ops = [Op(2 * n, 2 * n + 1, Write(n), by=f"c{n}") for n in range(50)]
    report = check(Register(), [*ops, Op(100, 102, Read(), 7, "c7"), Op(101, 103, Read(), 8, "c8")])
    assert report.verdict is BAD
    assert "50 of 52" in report.explanation[0]
    shown = "\n".join(report.explanation)
    assert "c49: Write(value=49)" in shown
    assert "c10:" not in shown, "only the end of the prefix"
    assert "[100, 102] c7: Read() -> 7" in shown.split("none of these")[1]
    assert "[101, 103] c8: Read() -> 8" in shown.split("none of these")[1]


def test_undecided_history_is_reported_and_never_guessed() -> None:
    ops = [Op(n, None, Write(n)) for n in range(24)] + [Op(100, 101, Write(-1)), Op(102, 103, Read(), -2)]
    report = check(Register(), ops, steps_max=1000)
    assert report.verdict is OPEN
    assert report.steps <= 1100
    assert "gave up after" in report.explanation[0]


def a_run(seed: int, many: int, *, clients: int = 8, lost: float = 0.0) -> list[Op]:
    random, cell, values = Random(seed), [None], iter(range(1, many + 1))

    def ask(random: Random) -> Any:
        chance = random.random()
        if chance < 0.5:
            return Read()
        return Write(next(values)) if chance < 0.9 else Swap(cell[0], next(values))

    def answer(asked: Any) -> Any:
        match asked:
            case Read():
                return cell[0]
            case Write(value):
                cell[0] = value
            case Swap(old, new):
                done = cell[0] == old
                cell[0] = new if done else cell[0]
                return done
        return None

    return executed(random, many, ask, answer, clients=clients, lost=lost)


@pytest.mark.parametrize(("clients", "lost"), [(3, 0.0), (8, 0.0), (8, 0.002)])
def test_ten_thousand_operations_of_one_register(clients: int, lost: float) -> None:
    """Issue 5. In one partition, without any revision that would help. 0.2 to 2 s."""
    ops = a_run(5, 10_000, clients=clients, lost=lost)
    report = check(Register(), ops)
    assert (report.verdict, len(ops)) == (GOOD, 10_000)
    assert report.states < 30 * len(ops), report


@pytest.mark.parametrize("clients", [3, 8])
def test_one_stale_read_among_ten_thousand_operations(clients: int) -> None:
    ops = a_run(7, 10_000, clients=clients)
    reads = [number for number, op in enumerate(ops) if isinstance(op.asked, Read)]
    stale = reads[-50]
    ops[stale] = replace(ops[stale], answered=ops[reads[-400]].answered)
    report = check(Register(), ops)
    assert report.verdict is BAD
    assert report.states < 30 * len(ops), report
    assert f"[{ops[stale].began}, {ops[stale].ended}]" in "\n".join(report.explanation)


# Every order of a tiny history, tried


def by_force(model: Model[Any], ops: list[Op]) -> Verdict:
    """The definition: some of the open operations take effect, and an order of all fits their times and results."""
    done, opened = [op for op in ops if op.ended is not None], [op for op in ops if op.ended is None]
    for some in chain.from_iterable(combinations(opened, many) for many in range(len(opened) + 1)):
        for order in permutations([*done, *some]):
            if keeps_time(order) and fits(model, order):
                return GOOD
    return BAD


def keeps_time(order: tuple[Op, ...]) -> bool:
    ends: list[int] = []
    latest = -1
    for op in order:
        if op.ended is not None:
            ends.append(op.ended)
    for number, op in enumerate(order):
        if any(later.ended is not None and later.ended < op.began for later in order[number + 1 :]):
            return False
        latest = max(latest, op.began)
    return True


def fits(model: Model[Any], order: tuple[Op, ...]) -> bool:
    states = {model.init()}
    for op in order:
        states = {after for state in states for after in model.step(state, op)}
    return bool(states)


def tiny_histories(asked: st.SearchStrategy[tuple[Any, Any]], many: int) -> st.SearchStrategy[list[Op]]:
    """Operations with random ends: any overlap."""

    @st.composite
    def made(draw: st.DrawFn) -> list[Op]:
        count = draw(st.integers(1, many))
        places = draw(st.permutations(range(2 * count)))
        ops = []
        for began, ended in (sorted(places[2 * n : 2 * n + 2]) for n in range(count)):
            request, answered = draw(asked)
            lost = draw(st.integers(0, 4)) == 0
            ops.append(Op(began, None, request) if lost else Op(began, ended, request, answered))
        return ops

    return made()


VALUES = st.integers(0, 2)
ASKED = st.one_of(
    st.tuples(st.builds(Write, VALUES), st.none()),
    st.tuples(st.just(Read()), VALUES),
    st.tuples(st.builds(Swap, VALUES, VALUES), st.booleans()),
)


@settings(max_examples=400, deadline=None)
@given(tiny_histories(ASKED, 5))
def test_tiny_histories_of_a_register_are_judged_as_by_force(ops: list[Op]) -> None:
    model = Register(0)
    assert check(model, ops).verdict is by_force(model, ops)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 12), st.sampled_from((0.0, 0.2)))
def test_generated_linearizable_history_is_accepted(seed: int, clients: int, lost: float) -> None:
    assert check(Register(), a_run(seed, 40, clients=clients, lost=lost)).verdict is GOOD
