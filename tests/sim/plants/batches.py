"""Faults of batches above one transaction: of their copies, their sweeper and their readers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from palisade.metastore.staged_rows import StagedRows
from palisade.pipeline import batch_steps, cuts
from palisade.pipeline.undo import Undo
from palisade.wire.batch_records import Window
from palisade.wire.scan_pages import ScannedChange
from tests.sim.plants.plant import Patch, Stage, caught_by

BATCHES = Stage("segments", 3)


@caught_by("large batches", on=BATCHES)
def batches_closed_before_they_are_copied(patch: Patch) -> None:
    def nothing(*_: Any) -> Iterator[Any]:
        return iter(())

    patch.setattr(batch_steps, "_copy_kind", nothing)


@caught_by("large batches", on=BATCHES)
def copies_that_replace_later_changes(patch: Patch) -> None:
    patch.setattr(StagedRows, "_has_changed", lambda self, row, opened: False)


@caught_by("large batches", on=BATCHES)
def copies_of_attempts_that_are_not_committed(patch: Patch) -> None:
    patch.setattr(batch_steps, "attempt_of", lambda chunk: "0")


@caught_by("large batches", on=BATCHES)
def sweeps_of_published_batches(patch: Patch) -> None:
    """As if nothing but the lease protected a stage, and it does not outlive the opening of the batch."""
    patch.setattr(batch_steps, "unused", lambda name: (batch_steps._absent(batch_steps.alive_key(name)),))


@caught_by("large batches", on=BATCHES)
def reads_within_a_batch(patch: Patch) -> None:
    def newest(revision: int, windows: Sequence[Window]) -> int:
        return revision

    patch.setattr(cuts, "cut_before", newest)


@caught_by("large batches", on=BATCHES, says="a slice of a vault")
def slices_that_undo_nothing(patch: Patch) -> None:
    patch.setattr(Undo, "rows", lambda self, keys, bodies, until: (keys, bodies))


@caught_by("large batches", on=BATCHES, says="a slice of a vault")
def slices_that_undo_the_latest_change_alone(patch: Patch) -> None:
    add = Undo.add

    def latest(self: Undo, changes: Iterable[ScannedChange]) -> None:
        add(self, reversed(list(changes)))

    patch.setattr(Undo, "add", latest)
