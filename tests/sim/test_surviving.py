"""A majority is lost, and a survivor continues alone: with its own changes, and only if that is permitted."""

from __future__ import annotations

import pytest

from tests.sim.backups import Base
from tests.sim.faults import Fault, Kind
from tests.sim.run import Run, run_seed
from tests.sim.world import Settings

LOST = Fault(6.0, Kind.LOSE_QUORUM, "n1", "n2", 0.5)


def bases(monkeypatch: pytest.MonkeyPatch) -> list[Base]:
    """The initial state of each history of a run."""
    found: list[Base] = []
    restored = Run._restored

    def noted(self: Run, base: Base) -> None:
        found.append(base)
        restored(self, base)

    monkeypatch.setattr(Run, "_restored", noted)
    return found


def test_survivor_with_the_longest_log_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bases(monkeypatch)
    outcome = run_seed(3, "calm", (LOST,), Settings())
    assert not outcome.violation
    (base,) = found
    assert base.kept >= base.past[-1].revision - 1 > 20, "the last entry may not have been committed yet"
    assert base.generation == 2
    assert outcome.coverage["fault: lose-quorum"] == 1
    assert outcome.coverage["membership: alone"] == 1


def test_leader_that_was_cut_off_brings_back_what_was_never_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own changes replace what the others had committed meanwhile, and clients see one history."""
    found = bases(monkeypatch)
    parted = []
    for seed in range(10, 40):
        outcome = run_seed(seed, "calm", (Fault(4.0, Kind.ISOLATE, "leader", "n1", 5.0), LOST), Settings())
        assert not outcome.violation
        parted = [base for base in found if 0 < base.kept < base.revision]
        if parted:
            return
    pytest.fail("no survivor had anything of its own")


def test_single_member_is_not_forced_again() -> None:
    """Two disasters at once: none of the lost members has returned as a voter when the survivor dies again."""
    outcome = run_seed(3, "calm", (LOST, Fault(6.75, Kind.LOSE_QUORUM, "n1", "n2", 0.5)), Settings())
    assert not outcome.violation
    assert outcome.coverage["fault: lose-quorum"] == 1
    assert outcome.coverage["survivor refused: MembershipRefused"] == 1
