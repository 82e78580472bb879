"""The leader's side of one connection with a holder: what to stage over it.

A holder that is already joined continues at its position. A joining holder gets what is not released and what its vault
lacks, as soon as RR is known, in a stage that is sent even if it is empty. Each following stage begins where the last
one ended.
"""

from __future__ import annotations

from collections.abc import Callable

from palisade.fencing.messages import Behind, Hello, HolderId, JoinMessage, Row, StageMessage


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

    def lacking(self, lm: int, released: int | None) -> tuple[int, int] | None:
        """(after, upto): the strict events of after < r <= upto have to be staged, even if there are none. None: no
        stage is due. `released`: RR; None while it is unknown."""
        if self._join_lv is not None:
            return None if released is None else (min(released, self._join_lv), lm)
        if self._sent is None or lm <= self._sent:
            return None
        return self._sent, lm

    def next_stage(
        self, term: int, lm: int, released: int | None, rows: Callable[[int], tuple[Row, ...] | None]
    ) -> StageMessage | Behind | None:
        """The next message, which counts as sent. `rows`: the strict events after a revision, up to `lm`; None if they
        cannot be staged: the holder catches up and joins again."""
        lacking = self.lacking(lm, released)
        if lacking is None:
            return None
        after, upto = lacking
        found = rows(after)
        self._join_lv = None
        if found is None:
            self._sent = None
            return Behind(term, self._chain, upto)
        self._sent = upto
        return StageMessage(term, self._chain, after, upto, found)

    def release_due(self, released: int | None) -> bool:
        """True once for each increase of RR."""
        if released is None or released <= self._released:
            return False
        self._released = released
        return True
