"""A pin on MM while a node recovers: compaction can't chase it, and can't be held up by it for ever (M6).

A pin lives for a short time and is renewed between two steps, so a node that died or hangs holds nothing for long; and
it is not renewed any more once it has lived for `life_s_max`. Without it recovery goes on, and may be overtaken.
"""

from __future__ import annotations

from palisade.recovery.errors import PinRefused
from palisade.recovery.ports import ClusterSource, RecoveryTime

PIN_S = 60.0
PIN_LIFE_S_MAX = 1800.0


class PinHolder:
    """`held`: whether it ever was. Raises SourceCompacted when what should be pinned is gone already."""

    def __init__(self, source: ClusterSource, clock: RecoveryTime, life_s_max: float = PIN_LIFE_S_MAX) -> None:
        self._source, self._clock = source, clock
        self._renew_at = self._clock.now()
        self._ends_at = self._clock.now() + life_s_max
        self._released = True
        self.held = False

    async def hold(self, revision: int, *, now: bool = False) -> None:
        """Call it between any two steps. `now`: it has to be this revision from here on, not at the next renewal."""
        at = self._clock.now()
        if at >= self._ends_at or (at < self._renew_at and not now):
            return
        try:
            lives_s = await self._source.pin(revision, min(PIN_S, self._ends_at - at))
        except PinRefused:
            self._renew_at = at + PIN_S
            return
        self.held, self._released = True, False
        self._renew_at = at + lives_s / 3

    async def release(self) -> None:
        if not self._released:
            self._released = True
            await self._source.unpin()
