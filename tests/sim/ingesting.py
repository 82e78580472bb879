"""A client that opens realtime segments at data nodes, appends rows, and closes them (issue 17, seed 003).

Row number n of a segment is the value n. A batch without an answer is sent again with its position, so the client never
has to know whether it was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from palisade.base.errors import PalisadeError
from palisade.catalog.timeline import Interval
from palisade.wire.segment_errors import NoSuchSegment
from tests.sim.checkers.segment_rows import COLUMNS, SegmentRows
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED
from tests.support.segment_writer import DAY_MS, DAYS, SOURCE

T = TypeVar("T")

BATCH_MAX = 3
PAUSE_S = 0.4
CLOSES = (0.15, 0.03)
"""The share of requests that close a segment: drawn for each."""
LEAVES = 0.1
"""The share of failed requests after which it opens another segment."""
REFUSED = (*EXPECTED, PalisadeError, ConnectionError, TimeoutError)


class Appender:
    """Of one segment at a time."""

    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._world, self._going = client, client.world, going
        self._chance = client.world.chance
        self._host: Host | None = None
        self._name = ""
        self._closes = 0.0
        self._position = self._rows = 0
        """What the segment has, and the size of the batch that is on its way."""

    @property
    def _checker(self) -> SegmentRows:
        return next(each for each in self._world.checkers if isinstance(each, SegmentRows))

    async def run(self) -> None:
        while self._going():
            await asyncio.sleep(PAUSE_S * self._chance.random())
            try:
                await self._step()
            except REFUSED as error:
                self._world.count(f"realtime refused: {type(error).__name__}")
                if isinstance(error, NoSuchSegment) or self._chance.random() < LEAVES:
                    self._host = None

    async def _step(self) -> None:
        if self._host is None:
            await self._open()
        elif not self._rows and self._chance.random() < self._closes:
            name = self._name
            await self._ask(self._host, lambda node: ingester_of(node).close_segment(name))
            self._world.count("realtime: closed")
            self._host = None
        else:
            await self._append(self._host)

    async def _open(self) -> None:
        host = self._world.hosts[self._chance.choice(self._world.data_nodes)]
        day, replicas, checker = self._chance.randrange(DAYS), self._chance.randrange(1, 3), self._checker
        interval = Interval(day * DAY_MS, (day + 1) * DAY_MS)

        async def open_segment(node: Any) -> tuple[str, int]:
            held = await ingester_of(node).open(SOURCE, interval, COLUMNS, replicas, self._client.name)
            checker.opened_segment(held.name)
            return held.name, held.log.rows

        self._name, self._position = await self._ask(host, open_segment)
        self._host, self._rows, self._closes = host, 0, self._chance.choice(CLOSES)
        self._world.count("realtime: opened")

    async def _append(self, host: Host) -> None:
        self._rows = self._rows or self._chance.randrange(1, BATCH_MAX + 1)
        name, position, rows, checker = self._name, self._position, self._rows, self._checker
        checker.sends(name, position + rows)

        async def append(node: Any) -> int:
            """Judged where the node answers, before the answer is sent."""
            done: int = await ingester_of(node).append(name, [[position + each] for each in range(rows)], position)
            checker.appended(host, name, done)
            return done

        self._position, self._rows = await self._ask(host, append), 0

    async def _ask(self, host: Host, work: Callable[[Any], Awaitable[T]]) -> T:
        async with asyncio.timeout(TIMEOUT_S):
            return await self._world.ask(self._client.process, self._client.name, host.http, work)


def ingester_of(node: Any) -> Any:
    return node.segments.local.realtime
