"""How wrong passwords slow down who tries them. Pure; time is handed in.

For each user and place that tries: two mistakes are free, then each next try waits twice as long, up to ten seconds;
tries at the same time stand in line. By place, too, so that a stranger can't keep a user out who signs in from
elsewhere. What is kept is bounded: who has been quiet the longest is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE = 2
FIRST_S, MOST_S = 0.25, 10.0
FORGET_S = 600.0
KEPT_MAX = 10_000

Who = tuple[str, str]


@dataclass(slots=True)
class _Tries:
    failures: int
    free_at: float
    last: float


class Attempts:
    def __init__(self) -> None:
        self._known: dict[Who, _Tries] = {}

    def wait_s(self, who: Who, now: float) -> float:
        """How long this try has to wait; the next one at the same time waits longer."""
        known = self._known.get(who)
        if known is None:
            return 0.0
        if now - known.last > FORGET_S:
            del self._known[who]
            return 0.0
        begin = max(now, known.free_at)
        known.free_at = begin + pause_s(known.failures)
        return begin - now

    def failed(self, who: Who, now: float) -> None:
        known = self._known.pop(who, None) or _Tries(0, now, now)
        known.failures += 1
        known.last = now
        known.free_at = max(known.free_at, now + pause_s(known.failures))
        self._known[who] = known
        if len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]

    def succeeded(self, who: Who) -> None:
        self._known.pop(who, None)


def pause_s(failures: int) -> float:
    if failures <= FREE:
        return 0.0
    return min(MOST_S, FIRST_S * 2.0 ** min(failures - FREE - 1, 20))
