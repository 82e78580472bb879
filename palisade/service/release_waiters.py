"""Responses that wait for a release: to strict writes, and to reads that have seen an unreleased change.

A response leaves once this node knows that every strict change up to its revision is released; so each node answers for
itself, under any leader. A write that is not released in time is answered as pending: it is committed and stays
committed (F8).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from operator import itemgetter

from palisade.base.metrics import Histogram
from palisade.service.strict_changes import StrictLog

SWEEP_S = 0.05
_REVISION = itemgetter(0)

OnReached = Callable[[bool], None]
"""Whether it was reached in time."""


class Waiting:
    """Callbacks that wait until `point` reaches a revision; `point` never goes back. Call `wake` whenever it has moved:
    `is_reached` and `when` use its value at the last call."""

    def __init__(self, point: Callable[[], int], now: Callable[[], float]) -> None:
        self._point = point
        self._reached = point()
        self.now = now
        self._waiting: list[tuple[int, float, float, OnReached]] = []
        """By revision; those of one revision in order of arrival."""
        self._sweeper: asyncio.TimerHandle | None = None
        self.waits = Histogram((0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 2.0, 4.0))
        self.late = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def is_reached(self, revision: int) -> bool:
        return revision <= self._reached

    def when(self, revision: int, until: float, on_reached: OnReached) -> None:
        """Call `on_reached` once, at once if `revision` is reached already. `until`: by the clock `now`."""
        if revision <= self._reached:
            on_reached(True)
            return
        waiting = self._waiting
        entry = (revision, until, self.now(), on_reached)
        if not waiting or revision >= waiting[-1][0]:
            waiting.append(entry)
        else:
            waiting.insert(bisect_right(waiting, revision, key=_REVISION), entry)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    async def until(self, revision: int, timeout_s: float) -> bool:
        """Whether it was reached in time."""
        if revision <= self._reached:
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def on_reached(in_time: bool) -> None:
            if not future.done():
                future.set_result(in_time)

        self.when(revision, self.now() + timeout_s, on_reached)
        return await future

    def wake(self) -> None:
        self._reached = max(self._reached, self._point())
        if not self._waiting or self._waiting[0][0] > self._reached:
            return
        reached = bisect_right(self._waiting, self._reached, key=_REVISION)
        now, waited, observe = self.now(), self._waiting[:reached], self.waits.observe
        del self._waiting[:reached]
        for _, _, began, on_reached in waited:
            observe(now - began)
            on_reached(True)

    def _sweep(self) -> None:
        self.wake()
        now = self.now()
        late = [each for each in self._waiting if each[1] <= now]
        if late:
            self._waiting = [each for each in self._waiting if each[1] > now]
            self.late += len(late)
            for _, _, _, on_reached in late:
                on_reached(False)
        self._sweeper = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep) if self._waiting else None


class ReleaseWaiters(Waiting):
    """Over the strict log of this node. `applied`: what waits until an entry is applied by this node."""

    def __init__(self, log: StrictLog, now: Callable[[], float]) -> None:
        super().__init__(lambda: log.point, now)
        self.log = log
        self.applied = Waiting(lambda: log.latest, now)

    def wake(self) -> None:
        self.applied.wake()
        super().wake()

    def release(self, revision: int) -> None:
        """RR is at least `revision`."""
        if self.log.release(revision):
            self.wake()
