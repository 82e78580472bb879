"""Clocks that drift by more than the product allows: leases may break, and that is detected; nothing else may (F3)."""

from __future__ import annotations

import pytest

from palisade.metastore.requests import Put, Range
from palisade.metastore.results import PutResult, RangeResult
from tests.sim.checkers import leases, linearizable
from tests.sim.checkers.beyond_the_bound import EXCUSED, writes_of
from tests.sim.faults import SCENARIOS, Fault, Kind
from tests.sim.history import History
from tests.sim.run import run_seed, settings_of
from tests.sim.seen import Ok, Path
from tests.sim.stories import Story
from tests.sim.test_leases import BROKEN_LEASES, revoked_and_shown
from tests.sim.world import Settings, Violation, World


def stale() -> History:
    """A read after a write, which does not return it."""
    history = History()
    put = history.begin("c1", "n1", Path.MEMBER, Put(b"s/a", b"1"))
    history.end(put, Ok(PutResult(2, None)))
    read = history.begin("c2", "n2", Path.FENCED_API, Range(b"s/a"))
    history.end(read, Ok(RangeResult(0, (), False, 0)))
    return history


def test_reads_may_be_old_and_writes_are_judged_without_them() -> None:
    assert linearizable.check(stale())
    assert not linearizable.check(writes_of(stale()))
    assert [operation.number for operation in writes_of(stale()).operations()] == [1]


def test_leases_are_judged_without_reads() -> None:
    """A read may return a key of a revoked lease, as any old key; each other violation of leases counts."""
    for broken in BROKEN_LEASES:
        story = Story()
        broken(story)
        found = leases.check(story.history)
        reads = [each for each in found if "was shown" in each]
        assert len(reads) == (broken is revoked_and_shown)
        assert leases.check(writes_of(story.history)) == [each for each in found if each not in reads]


def test_only_stale_reads_by_leases_are_excused() -> None:
    world = World(1, Settings())
    world.excused = EXCUSED
    world.fail("lease safety", "a page is up")
    assert world.coverage == {"beyond the bound: lease safety": 1}
    assert not world.violations
    with pytest.raises(Violation):
        world.fail("durable", "a write is lost")
    world.close()


def test_clocks_beyond_the_bound_are_in_one_scenario() -> None:
    """Within the bound (1 %) everything is promised, and no checker is excused."""
    for name, scenario in SCENARIOS.items():
        assert (settings_of(3, scenario).drift > 0.01) == (name == "drift")


def test_clocks_beyond_the_bound_break_only_excused_checks() -> None:
    """scenarios.md: "beyond the bound the checker must be able to see a violation (this proves the checker)"."""
    plan = tuple(Fault(2.0 + 7.0 * number, Kind.ISOLATE_LONG, "f1", "n1", 6.0) for number in range(2))
    seen: set[str] = set()
    for seed in range(4, 20):
        outcome = run_seed(seed, "drift", plan, Settings(drift=0.25))
        assert not outcome.violation, outcome.violation
        seen |= {row for row in outcome.coverage if row.startswith("beyond the bound: ")}
        if len(seen) == len(EXCUSED):
            return
    pytest.fail(f"only {sorted(seen)} were broken")
