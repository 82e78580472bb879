"""The leader's side of one connection with a holder: what to stage over it.

A holder that is already joined continues at its position. A joining holder gets what is not released and what its vault
lacks, as soon as RR is known, in a stage that is sent even if it is empty. Each following stage begins where the last
one ended.
"""

from __future__ import annotations

from dataclasses import dataclass

from palisade.fencing.messages import Behind, Hello, HolderId, JoinMessage, Row, StageMessage


@dataclass(frozen=True, slots=True)
class StageRange:
    """The strict events of after < r <= upto have to be staged; there may be none."""

    chain: int
    after: int
    upto: int

    def stage(self, term: int, rows: tuple[Row, ...]) -> StageMessage:
        return StageMessage(term, self.chain, self.after, self.upto, rows)

    def behind(self, term: int) -> Behind:
        return Behind(term, self.chain, self.upto)


class HolderSession:
    """Begins with the holder's Hello."""

    __slots__ = ("_chain", "_holder", "_join_lv", "_released", "_sent")

    def __init__(self, hello: Hello) -> None:
        self._holder = hello.holder
        self._chain = hello.chain
        self._join_lv: int | None = None
        self._sent: int | None = hello.staged if hello.joined else None
        self._released = 0

    @property
    def holder(self) -> HolderId:
        return self._holder

    @property
    def joined(self) -> bool:
        """Whether the holder takes stages, or has requested them."""
        return self._sent is not None or self._join_lv is not None

    def on_join(self, join: JoinMessage) -> None:
        if join.chain > self._chain:
            self._chain, self._join_lv, self._sent = join.chain, join.lv, None

    def next_range(self, lm: int, released: int | None) -> StageRange | None:
        """The next range to stage, if any. `released`: RR; None while it is unknown."""
        if self._join_lv is not None:
            return None if released is None else StageRange(self._chain, min(released, self._join_lv), lm)
        if self._sent is None or lm <= self._sent:
            return None
        return StageRange(self._chain, self._sent, lm)

    def sent(self, staged: StageRange) -> None:
        """Call when the stage of this range was sent."""
        if staged.chain == self._chain:
            self._join_lv, self._sent = None, staged.upto

    def behind(self) -> None:
        """Call when a Behind was sent because the range cannot be staged. The holder joins again."""
        self._join_lv = self._sent = None

    def release_due(self, released: int | None) -> bool:
        """True once for each increase of RR."""
        if released is None or released <= self._released:
            return False
        self._released = released
        return True
