"""Publication of large batches in any order of steps, with processes that end between any two of them (issue 18)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from palisade.metastore.requests import Put, Range, Txn
from palisade.metastore.staged_rows import StagedRows, pack_chunk
from palisade.pipeline import batch_steps
from palisade.pipeline.batch_steps import ROWS, Draft, Steps, alive_key, chunk_key, finish_overlapping, open_batch
from palisade.pipeline.query_record import BatchName
from tests.support.batch_world import HERE, KEYS, PREFIX, RECORD, BatchWorld, Violation, always, nothing

SEEDS = 60
PLANTED_SEEDS = 150


def played(seed: int, patch: pytest.MonkeyPatch) -> BatchWorld:
    """In every second schedule, the chunks of a batch are on several pages."""
    with patch.context() as pages:
        if seed % 2:
            pages.setattr(batch_steps, "CHUNKS_PER_PAGE", 2)
        world = BatchWorld(seed)
        world.play()
    return world


@pytest.mark.parametrize("seed", range(SEEDS))
def test_readers_see_all_rows_of_a_batch_or_none_and_the_newest_change_wins(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(seed, monkeypatch).check()


def staged(world: BatchWorld, name: str) -> Draft:
    """Batch 0 of a query, staged by another driver each time."""
    alive = world.do(Put(alive_key(name), b"")).revision
    world.do(Put(chunk_key(name, ROWS, "0", 0), pack_chunk([(KEYS[0], name.encode())])))
    return Draft(name, alive, (PREFIX,), ("0",), BatchName("q", 0, HERE), RECORD)


def returned(world: BatchWorld, steps: Steps, answer: Any) -> Any:
    """By steps that continue with `answer`."""
    while True:
        try:
            request = steps.send(answer)
        except StopIteration as end:
            return end.value
        answer = world.do(request) if isinstance(request, Range | Txn) else None


def test_batch_that_another_driver_opens_and_closes_before_the_transaction_is_not_published_twice() -> None:
    """Between its look at the record and its transaction: then no open batch shows it, only the record."""
    world = BatchWorld(0)
    slow, fast = open_batch(staged(world, "slow")), staged(world, "fast")
    request = next(slow)
    while not isinstance(request, Txn):
        request = slow.send(world.do(request) if isinstance(request, Range) else None)
    for step in world.run(open_batch(fast)), world.run(finish_overlapping((PREFIX,))):
        deque(step, 0)
    assert returned(world, slow, world.do(request)) is None
    (found,) = world.do(Range(KEYS[0])).kvs
    assert (found.value, found.version) == (b"fast", 1)


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


def copy_the_first_page_alone(patch: pytest.MonkeyPatch) -> None:
    real = batch_steps._copy_kind

    def planted(record: Any, kind: bytes, span: Any) -> Any:
        steps, pages, answer = real(record, kind, span), 0, None
        with suppress(StopIteration):
            while pages < 2:
                request = steps.send(answer)
                pages += isinstance(request, Range)
                if pages < 2:
                    answer = yield request

    patch.setattr(batch_steps, "_copy_kind", planted)


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
    copy_the_first_page_alone,
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
        world = played(seed, monkeypatch)
        try:
            world.check()
        except Violation:
            return
    pytest.fail(f"{planted.__name__} was not found in {PLANTED_SEEDS} schedules")
