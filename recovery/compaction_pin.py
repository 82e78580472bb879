"""A pin on MM while a node recovers: compaction cannot overtake the recovery, nor be blocked by it forever (M6).

A pin has a short life and is renewed between steps, so a node that died or hangs holds MM only briefly. It is no longer
renewed after `life_s_max`. Without the pin recovery continues, and may be overtaken.
"""

from __future__ import annotations

from palisade.recovery.errors import PinRefused
from palisade.recovery.ports import ClusterSource, RecoveryTime

PIN_S = 60.0
PIN_LIFE_S_MAX = 1800.0


class PinHolder:
    """`held`: whether it was ever held. Raises SourceCompacted if the revision to pin is already compacted."""

    def __init__(self, source: ClusterSource, clock: RecoveryTime, life_s_max: float = PIN_LIFE_S_MAX) -> None:
        self._source, self._clock = source, clock
        self._renew_at = self._clock.now()
        self._ends_at = self._clock.now() + life_s_max
        self._released = True
        self.held = False

    async def hold(self, revision: int, *, now: bool = False) -> None:
        """Call it between any two steps. `now`: pin exactly this revision at once, not at the next renewal."""
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
