"""The chain of stages of a holder: which strict events it has.

**Joined** means: every staged strict event that must not be shown yet is marked as pending, and every strict event up
to `staged` is in the vault or marked. A chain begins with the Hello of a joined holder, or with a Join. The first
stage of a Join begins at RR or below and at LV or below, so the vault has all earlier events and may show them. Each
stage must begin at or below the end of the previous one; otherwise there is a gap. Stages of another chain are
ignored: between two chains, a vault may have applied unreleased events unmarked, so earlier marks may be missing.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from operator import itemgetter

from palisade.fencing.messages import Row, StageMessage

_REVISION = itemgetter(0)
STEP = 1 << 12
"""A chain number is the start time of the holder in microseconds, with the incarnation in the low bits. Thus a stage in
flight for an earlier chain, of this or an earlier process, has another number."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Put these rows into PENDING in one commit, then call `marked`. `anew`: replace all rows of PENDING."""

    chain: int
    upto: int
    rows: tuple[Row, ...]
    anew: bool


class NotMarked(enum.Enum):
    """Why a stage is not marked."""

    GAP = "gap after the staged revisions: send Hello again"
    OTHER_CHAIN = "ignored: of another chain"
    HAD = "already staged"


class StageChain:
    """`received`: handed out for marking. `staged`: marked and committed. The caller commits marks in the order of
    `take`."""

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
        """A Join was sent, and its first stage is not marked yet."""
        return not self._joined and (self._begun or self._join_lv is not None)

    @property
    def staged(self) -> int:
        """0 unless joined."""
        return self._staged if self._joined else 0

    def begin_chain(self) -> int:
        """Begin a chain with a Hello; returns its number. Stages that are received but not marked have to be sent
        again."""
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
        """The vault may apply events unmarked from now on. Marks become incomplete until a new Join."""
        self._joined = False
        self._staged = 0
        self.begin_chain()

    def take(self, stage: StageMessage) -> Mark | NotMarked:
        """The rows of this stage to mark, or why there are none."""
        if stage.chain != self._chain:
            return NotMarked.OTHER_CHAIN
        if self._join_lv is not None:
            if stage.after > self._join_lv:
                return NotMarked.GAP
            self._join_lv, self._begun, self._received = None, True, stage.upto
            return Mark(self._chain, stage.upto, stage.rows, anew=True)
        if not self._begun:
            return NotMarked.OTHER_CHAIN
        if stage.after > self._received:
            return NotMarked.GAP
        if stage.upto <= self._received:
            return NotMarked.HAD
        # Do not mark a row twice: a later row of the same key may have replaced it.
        rows = stage.rows
        if rows and min(map(_REVISION, rows)) <= self._received:
            rows = tuple(row for row in rows if row[0] > self._received)
        self._received = stage.upto
        return Mark(self._chain, stage.upto, rows, anew=False)

    def marked(self, mark: Mark) -> bool:
        """Call when these marks are committed. False: another chain has begun."""
        if mark.chain != self._chain or mark.upto > self._received:
            return False
        self._joined = True
        self._staged = max(self._staged, mark.upto)
        return True
