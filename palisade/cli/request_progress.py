"""The progress line of a command that sends many requests: ended and failed requests, rate, remaining time.

palisade: bench put: 3,412 of 10,000, 64 failed, 812/s, 8 s left; n1 at 127.0.0.1:7601 does not respond
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

WINDOW_S = 3.0
"""The period over which the rate is computed."""


class RequestProgress:
    """`phase`: the current activity. `trouble`: why no answer can arrive at the moment."""

    def __init__(
        self,
        title: str,
        trouble: Callable[[], str | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._title, self._trouble, self._clock = title, trouble, clock
        self._began = clock()
        self._samples: deque[tuple[float, int]] = deque()
        self.phase = "connecting"
        self._done = self._total = self._failed = self._before = 0

    def count(self, done: int, total: int) -> None:
        """`done` of `total` requests have succeeded. Ends a phase without a total; what was done in it does
        not count for the rate of the next one."""
        if not self._total:
            self.begin("", total)
            self._before = done
        self._done, self._total = done, total

    def fail(self) -> None:
        """One more request has failed."""
        self._failed += 1

    def begin(self, phase: str, total: int = 0) -> None:
        """Begin another phase. `total`: number of its requests, 0 if unknown."""
        self.phase, self._total, self._done, self._failed, self._before = phase, total, 0, 0, 0
        self._began = self._clock()
        self._samples.clear()

    def line(self) -> str:
        trouble = " ".join((self._trouble() or "").split())
        return f"palisade: {self._title}: {self._counts()}{f'; {trouble}' if trouble else ''}"

    def _counts(self) -> str:
        if not self._total:
            return self.phase
        now, ended = self._clock(), self._done - self._before + self._failed
        self._samples.append((now, ended))
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()
        since, before = self._samples[0] if len(self._samples) > 1 else (self._began, 0)
        phase = f"{self.phase}, " if self.phase else ""
        failed = f", {self._failed:,} failed" if self._failed else ""
        rate = (ended - before) / (now - since) if now > since else 0.0
        return f"{phase}{self._done:,} of {self._total:,}{failed}, {rate:,.0f}/s{self._left(ended, now)}"

    def _left(self, ended: int, now: float) -> str:
        """The remaining time by the mean rate of the phase; empty before the first request has ended."""
        if not ended or now <= self._began:
            return ""
        rest = self._total - self._before - ended
        return f", {rest * (now - self._began) / ended:,.0f} s left"
