"""Publication of large batches in any order of steps, with processes that end between any two of them (issue 18)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from palisade.metastore.staged_rows import StagedRows
from palisade.pipeline import batch_steps
from tests.support.batch_world import BatchWorld, Violation, always, nothing

SEEDS = 60
PLANTED_SEEDS = 150


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_see_all_rows_of_a_batch_or_none_and_the_newest_change_wins(seed: int) -> None:
    world = BatchWorld(seed)
    world.play()
    world.check()


def test_schedules_contain_their_faults() -> None:
    """Batches that overlap, that others finish, that are repeated, whose stages expire."""
    batches = windows = 0
    for seed in range(20):
        world = BatchWorld(seed)
        world.play()
        world.check()
        batches += world.oracle.opened
        windows += len(world.windows())
        assert not any(window.closed == 0 for window in world.windows())
    assert batches == windows > 60


def test_nothing_stays_staged_once_leases_have_expired() -> None:
    for seed in range(20):
        world = BatchWorld(seed)
        world.play()
        for _ in range(20):
            world.expire()
        world.finish()
        assert world.staged() == 0


def close_before_copying(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_steps, "_copy_kind", nothing)


def copy_every_attempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_steps, "attempt_of", lambda chunk: "0")


def copy_without_guard(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StagedRows, "_has_changed", lambda self, row, opened: False)


def sweep_live_stages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_steps, "unused", lambda name: ())


def sweep_open_batches(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_steps, "unused", lambda name: (batch_steps._absent(batch_steps.alive_key(name)),))


def open_without_stage(patch: pytest.MonkeyPatch) -> None:
    real = batch_steps._created_at
    patch.setattr(batch_steps, "_created_at", lambda key, at: always() if key.endswith(b"alive") else real(key, at))


def open_without_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_steps, "_modified_at", always)


def open_two_at_once(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(batch_steps, "closed_since", always)


def replace_what_was_read_before(patch: pytest.MonkeyPatch) -> None:
    real = batch_steps._unchanged_since

    def planted(key: bytes, end: bytes, revision: int) -> Any:
        return always() if key == b"p/" else real(key, end, revision)

    patch.setattr(batch_steps, "_unchanged_since", planted)


def record_a_later_opening(patch: pytest.MonkeyPatch) -> None:
    real = batch_steps.replace

    def planted(record: Any, **changes: Any) -> Any:
        return real(record, **changes, **({} if "opened" in changes else {"opened": record.opened + 1}))

    patch.setattr(batch_steps, "replace", planted)


PLANTED: list[Callable[[pytest.MonkeyPatch], None]] = [
    close_before_copying,
    copy_every_attempt,
    copy_without_guard,
    sweep_live_stages,
    sweep_open_batches,
    open_without_stage,
    open_without_record,
    open_two_at_once,
    replace_what_was_read_before,
    record_a_later_opening,
]


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.__name__)
def test_planted_fault_is_found(planted: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    planted(monkeypatch)
    for seed in range(PLANTED_SEEDS):
        world = BatchWorld(seed)
        world.play()
        try:
            world.check()
        except Violation:
            return
    pytest.fail(f"{planted.__name__} was not found in {PLANTED_SEEDS} schedules")
