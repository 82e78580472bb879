"""The replicated clock of the leases, and the wall time that labels revisions.

A stamp is [wall_ms, clock_ms]. `clock_ms` is independent of wall time: a leader continues from the last applied stamp
by its own elapsed time since it became leader. Time without a leader does not count. So a lease may live longer than
its ttl, never shorter, and its remaining time survives a change of leader (M5).
"""

from __future__ import annotations

from collections.abc import Sequence

from palisade.base.invariant import InvariantViolated
from palisade.metastore.state import StoreState

TIME_MS_MAX = 1 << 63


class StampClock:
    """Creates stamps on the leader, and accepts them on every replica."""

    __slots__ = ("_base_ms", "_since", "_state")

    def __init__(self, state: StoreState) -> None:
        self._state = state
        self._base_ms: int | None = None
        self._since = 0.0

    def lead(self, now: float) -> None:
        """`now` in seconds, of the node's own monotonic clock."""
        self._base_ms = self._state.clock_ms
        self._since = now

    def clock_ms(self, now: float) -> int:
        """The lease clock according to this leader; the last applied one if this node never led."""
        if self._base_ms is None:
            return self._state.clock_ms
        return max(self._state.clock_ms, self._base_ms + int((now - self._since) * 1000))

    def stamp(self, now: float, wall_ms: int) -> list[int]:
        return [max(self._state.wall_ms, wall_ms), self.clock_ms(now)]

    def accept(self, stamp: Sequence[int]) -> None:
        """Neither time goes back, even if a leader with a lagging clock stamped it."""
        sound = type(stamp) in (list, tuple) and [type(part) for part in stamp] == [int, int]
        if not sound or not 0 <= min(stamp) <= max(stamp) < TIME_MS_MAX:
            raise InvariantViolated(
                f"the stamp of a batch is [wall_ms, clock_ms], not {stamp!r}: the leader is not of this version"
            )
        self._state.wall_ms = max(self._state.wall_ms, stamp[0])
        self._state.clock_ms = max(self._state.clock_ms, stamp[1])
