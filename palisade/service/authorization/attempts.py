"""Delays after wrong passwords. Pure; time is handed in.

Counted per user and client address: two wrong passwords are free, then each further attempt waits twice as long, up to
ten seconds; concurrent attempts are queued. Counting by address too prevents a stranger from locking out a user who
signs in from elsewhere. Memory is bounded: the source that has been idle longest is forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass

FREE = 2
FIRST_S, MOST_S = 0.25, 10.0
FORGET_S = 600.0
KEPT_MAX = 10_000

Source = tuple[str, str]
"""(user, client address)"""


@dataclass(slots=True)
class _Tries:
    failures: int
    free_at: float
    last: float


class Attempts:
    def __init__(self) -> None:
        self._known: dict[Source, _Tries] = {}

    def wait_s(self, source: Source, now: float) -> float:
        """How long this attempt waits; a concurrent next one waits longer."""
        known = self._known.get(source)
        if known is None:
            return 0.0
        if now - known.last > FORGET_S:
            del self._known[source]
            return 0.0
        begin = max(now, known.free_at)
        known.free_at = begin + pause_s(known.failures)
        return begin - now

    def failed(self, source: Source, now: float) -> None:
        known = self._known.pop(source, None) or _Tries(0, now, now)
        known.failures += 1
        known.last = now
        known.free_at = max(known.free_at, now + pause_s(known.failures))
        self._known[source] = known
        if len(self._known) > KEPT_MAX:
            del self._known[next(iter(self._known))]

    def succeeded(self, source: Source) -> None:
        self._known.pop(source, None)


def pause_s(failures: int) -> float:
    if failures <= FREE:
        return 0.0
    return min(MOST_S, FIRST_S * 2.0 ** min(failures - FREE - 1, 20))
