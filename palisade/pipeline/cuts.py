"""Revisions that no batch splits: a reader that begins and ends at these sees all rows of a batch, or none. Pure.

`wire.batch_records` has the windows. Batches of different keys may overlap in time, so a revision is moved until no
window splits it.
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.pipeline.errors import PipelineError
from palisade.wire.batch_records import Window


class InsideBatch(PipelineError):
    """The requested revision has only a part of a batch."""


class BatchOpen(PipelineError):
    """A published batch is not complete at its keys yet, and this reader may not complete it."""

    retry = True


def splitting(revision: int, windows: Sequence[Window]) -> Window | None:
    return next((window for window in windows if window.splits(revision)), None)


def cut_before(revision: int, windows: Sequence[Window]) -> int:
    """The newest revision, at most `revision`, that no window splits."""
    while (window := splitting(revision, windows)) is not None:
        revision = window.opened
    return revision


def cut_after(revision: int, windows: Sequence[Window]) -> int | None:
    """The oldest revision, at least `revision`, that no window splits; None while a batch is open."""
    while (window := splitting(revision, windows)) is not None:
        if not window.closed:
            return None
        revision = window.closed
    return revision


def require_cut(option: str, revision: int, windows: Sequence[Window]) -> None:
    """Raises InsideBatch."""
    if splitting(revision, windows) is None:
        return
    after = cut_after(revision, windows)
    later = "a later one once the batch is complete" if after is None else f"{after} (after it)"
    raise InsideBatch(
        f"option {option}: at revision {revision} a part of a batch is at its keys: give "
        f"{cut_before(revision, windows)} (before the batch) or {later}"
    )
