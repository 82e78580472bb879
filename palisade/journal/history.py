"""The common part of two journals, found without comparing their entries. Pure.

Only one copy appends under one activation sequence. Thus if both journals have entries of a sequence, they are equal up
to the earlier end of that sequence; its chain proves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from palisade.journal.blocks import JournalBlock, JournalEnd


@dataclass(frozen=True, slots=True)
class Run:
    """The end of the entries of one activation sequence."""

    sequence: int
    last: int
    chain: int

    @property
    def end(self) -> JournalEnd:
        return JournalEnd(self.last, self.chain)


def extended(runs: list[Run], block: JournalBlock) -> None:
    run = Run(block.sequence, block.last, block.chain)
    if runs and runs[-1].sequence == block.sequence:
        runs[-1] = run
    else:
        runs.append(run)


def common_end(own: Sequence[Run], theirs: Sequence[Run], own_chain_at: Callable[[int], int | None]) -> JournalEnd:
    """The end of the common part of both journals, as far as this side can determine it.

    The own chain at the returned number has to be compared by the other side. `own_chain_at`: None if no block ends
    there."""
    ends = {run.sequence: run for run in own}
    for run in reversed(theirs):
        mine = ends.get(run.sequence)
        if mine is None:
            continue
        if mine.last <= run.last:
            return mine.end
        if own_chain_at(run.last) == run.chain:
            return run.end
    return JournalEnd()
