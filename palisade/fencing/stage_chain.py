"""What of the strict events a holder has, and from where on: the chain of stages.

**Joined** means: every strict event that may not be shown yet and was staged is marked as pending, and every strict
event up to `staged` is in the vault or marked. A chain begins with a Hello of a holder that is joined, or with a Join:
its first stage then begins at RR or below, and at LV or below, so the vault has what came before and may show it. Each
stage begins where the one before it ended, or is a gap; a stage of another chain counts for nothing, since marks may
be missing in front of it: between two chains a vault may have applied what is not released, unmarked.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from operator import itemgetter

from palisade.fencing.messages import Row, Stage

_REVISION = itemgetter(0)
STEP = 1 << 12
"""Chains are numbered by when their holder began, in microseconds, and by its incarnation in the low bits: so a stage
that is under way for the one before it, of another process or of this one, is of another chain."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Put these rows into PENDING in one commit, then say so to `marked`. `anew`: in place of all that is there."""

    chain: int
    upto: int
    rows: tuple[Row, ...]
    anew: bool


class Odd(enum.Enum):
    """A stage that can't be taken."""

    GAP = "it does not follow what is here: say Hello again"
    OTHER_CHAIN = "of an earlier Hello or Join: ignored"
    HAD = "it is staged already"


class Staging:
    """`received`: handed out to be marked; `staged`: marked, and committed. Marks are committed in the order in which
    they are handed out."""

    __slots__ = ("_begun", "_chain", "_join_lv", "_joined", "_received", "_staged")

    def __init__(self, incarnation: int, now: float) -> None:
        self._chain = int(now * 1e6) * STEP + incarnation % STEP
        self._begun = False
        self._join_lv: int | None = None
        self._joined = False
        self._received = 0
        self._staged = 0

    @property
    def chain(self) -> int:
        return self._chain

    @property
    def joined(self) -> bool:
        return self._joined

    @property
    def joining(self) -> bool:
        """A Join is out, and its first stage is not marked yet."""
        return not self._joined and (self._begun or self._join_lv is not None)

    @property
    def staged(self) -> int:
        """0 unless joined."""
        return self._staged if self._joined else 0

    def begin_chain(self) -> int:
        """For a Hello. What was received and is not marked yet has to come again."""
        self._chain += STEP
        self._join_lv = None
        self._begun = self._joined
        self._received = self.staged
        return self._chain

    def begin_join(self, lv: int) -> int:
        self.leave()
        self._join_lv = lv
        return self._chain

    def leave(self) -> None:
        """The vault applies freely from here on, so the marks are no longer all there: only a new Join helps."""
        self._joined = False
        self._staged = 0
        self.begin_chain()

    def take(self, stage: Stage) -> Mark | Odd:
        """Which rows are to be marked for this stage."""
        if stage.chain != self._chain:
            return Odd.OTHER_CHAIN
        if self._join_lv is not None:
            if stage.after > self._join_lv:
                return Odd.GAP
            self._join_lv, self._begun, self._received = None, True, stage.upto
            return Mark(self._chain, stage.upto, stage.rows, anew=True)
        if not self._begun:
            return Odd.OTHER_CHAIN
        if stage.after > self._received:
            return Odd.GAP
        if stage.upto <= self._received:
            return Odd.HAD
        # A row that came before must not come again: a later one of the same key may be in its place by now.
        rows = stage.rows
        if rows and min(map(_REVISION, rows)) <= self._received:
            rows = tuple(row for row in rows if row[0] > self._received)
        self._received = stage.upto
        return Mark(self._chain, stage.upto, rows, anew=False)

    def marked(self, mark: Mark) -> bool:
        """The commit of these marks has returned. False: overtaken by another chain."""
        if mark.chain != self._chain or mark.upto > self._received:
            return False
        self._joined = True
        self._staged = max(self._staged, mark.upto)
        return True
