"""Read barriers: who waits until a local read is linearizable.

On the leader a read needs proof that nobody else led when it began: the quorum lease, or a majority that acknowledges
an append sent after the read began (Raft thesis 6.4). On another member it needs that proof from the leader, with the
leader's applied index, and then its own state machine at that index.
"""

from __future__ import annotations

import asyncio
import heapq
from itertools import count


class Waiters:
    """Futures that wait for a number to be reached: a time that a majority confirmed, or an applied index."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, at_least: float, future: asyncio.Future[None]) -> None:
        heapq.heappush(self._heap, (at_least, next(self._order), future))

    def reached(self, value: float) -> None:
        while self._heap and self._heap[0][0] <= value:
            future = heapq.heappop(self._heap)[2]
            if not future.done():
                future.set_result(None)

    def fail(self, error: Exception) -> None:
        waiting, self._heap = self._heap, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)
