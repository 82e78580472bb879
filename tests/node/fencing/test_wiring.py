"""The wiring under simulated time: no stale and no new-then-old read, whatever is delayed, broken or paused (F3, F5,
F11; scenarios.md, "New-then-old"). Planted faults show that the checker sees what it is for."""

from __future__ import annotations

from typing import Any

import pytest

from node.fencing.fenced_reads import FencedReads
from node.fencing.gate import VaultGate
from node.fencing.holder import VaultHolder
from tests.support.wired_fencing import World
from vault.reading import Shown, Snapshot, Unreleased, look_up

SEEDS = range(12)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_read_is_older_than_what_anybody_was_told(seed: int) -> None:
    world = World(seed)
    world.play(12.0)
    world.check()
    assert len(world.reads) > 100
    assert len(world.answered) > 50
    assert len(world.answered) == world.value, "every write ends, by T_proceed after its commit at the latest"
    assert max(told.ended - told.began for told in world.answered) < world.timing.proceed_s() + 0.1


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_take_longer_than_a_lease_only_fence(seed: int) -> None:
    world = World(seed, delay_max_s=5.0)
    world.play(12.0)
    world.check()


def answers_at_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "answer", lambda self, told: told(True))


def stages_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """STAGED is answered, and nothing is marked."""
    mark = VaultHolder._mark

    def marked(self: VaultHolder, mark_: Any) -> None:
        monkeypatch.setattr(self.vault.staging, "stage", lambda rows, anew=False: [])
        mark(self, mark_)

    monkeypatch.setattr(VaultHolder, "_mark", marked)


def gate_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is committed enters the vault, released or not; and its own guard is away."""
    monkeypatch.setattr(VaultGate, "_free", lambda self, revisions: len(revisions))
    monkeypatch.setattr("vault.staging.Staging.superseded", lambda self, lv: {})
    stages_nothing(monkeypatch)


def serves_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers of the node do not look at its lease."""

    def at_once(self: FencedReads, key: bytes) -> Shown | None:
        reader = self._reader
        assert reader is not None
        source = reader._require_source()
        reader._verified()
        found = look_up(Snapshot(source.begin(), source.tables), key, reader._fence.released)
        return None if isinstance(found, Unreleased) else Shown(found, 0)

    monkeypatch.setattr(FencedReads, "at_once", at_once)


@pytest.mark.parametrize("fault", [answers_at_commit, stages_nothing, gate_open, serves_for_ever])
def test_a_planted_fault_is_seen(fault: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    assert any(sees_it(World(seed)) for seed in range(6))


def sees_it(world: World) -> bool:
    world.play(12.0)
    try:
        world.check()
    except AssertionError:
        return True
    return False
