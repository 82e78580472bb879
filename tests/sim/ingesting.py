"""A client that opens realtime segments at data nodes, appends rows, and closes them (issue 17, seed 003).

Row number n of a segment is the value n. A batch without an answer is sent again with its position, so the client never
has to know whether it was stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from palisade.catalog.timeline import Interval
from palisade.wire.segment_errors import NoSuchSegment
from tests.sim.checkers.segment_rows import COLUMNS, SegmentRows
from tests.sim.clients import Client
from tests.sim.node import Host
from tests.sim.segment_client import REFUSED, SegmentClient
from tests.support.segment_writer import DAY_MS, DAYS, SOURCE

BATCH_MAX = 3
PAUSE_S = 0.4
CLOSES = (0.15, 0.03)
"""The share of requests that close a segment: drawn for each."""
LEAVES = 0.1
"""The share of failed requests after which it opens another segment."""


class Appender(SegmentClient):
    """Of one segment at a time."""

    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        super().__init__(client, going)
        self._host: Host | None = None
        self._name = ""
        self._closes = 0.0
        self._position = self._rows = 0
        """What the segment has, and the size of the batch that is on its way."""

    async def run(self) -> None:
        while self.going():
            await asyncio.sleep(PAUSE_S * self.chance.random())
            try:
                await self._step()
            except REFUSED as error:
                self.world.count(f"realtime refused: {type(error).__name__}")
                if isinstance(error, NoSuchSegment) or self.chance.random() < LEAVES:
                    self._host = None

    async def _step(self) -> None:
        if self._host is None:
            await self._open()
        elif not self._rows and self.chance.random() < self._closes:
            name = self._name
            await self.ask(self._host, lambda node: ingester_of(node).close_segment(name))
            self.world.count("realtime: closed")
            self._host = None
        else:
            await self._append(self._host)

    async def _open(self) -> None:
        host = self.world.hosts[self.chance.choice(self.world.data_nodes)]
        day, replicas, checker = (
            self.chance.randrange(DAYS),
            self.chance.randrange(1, 3),
            self.world.checker(SegmentRows),
        )
        interval = Interval(day * DAY_MS, (day + 1) * DAY_MS)

        async def open_segment(node: Any) -> tuple[str, int]:
            held = await ingester_of(node).open(SOURCE, interval, COLUMNS, replicas, self.client.name)
            checker.opened_segment(held.name)
            return held.name, held.log.rows

        self._name, self._position = await self.ask(host, open_segment)
        self._host, self._rows, self._closes = host, 0, self.chance.choice(CLOSES)
        self.world.count("realtime: opened")

    async def _append(self, host: Host) -> None:
        self._rows = self._rows or self.chance.randrange(1, BATCH_MAX + 1)
        name, position, rows, checker = self._name, self._position, self._rows, self.world.checker(SegmentRows)
        checker.sends(name, position + rows)

        async def append(node: Any) -> int:
            """Judged where the node answers, before the answer is sent."""
            done: int = await ingester_of(node).append(name, [[position + each] for each in range(rows)], position)
            checker.appended(host, name, done)
            return done

        self._position, self._rows = await self.ask(host, append), 0


def ingester_of(node: Any) -> Any:
    return node.segments.local.realtime
