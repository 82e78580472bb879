"""A client that counts rows over the data nodes, with the code of `palisade query count` (issue 17)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from palisade.api.http.v1_segment_copies import PARTS, SegmentCopyRoutes
from palisade.api.segment_service import SegmentLookups as LookupService
from palisade.base.errors import PalisadeError
from palisade.catalog.segment import time_text
from palisade.client.segment_query import CountFailed, count_rows, lookup_all
from palisade.wire.segment_errors import SegmentsUnavailable
from tests.sim.checkers.segment_copies import SegmentCopies
from tests.sim.checkers.segment_counts import CountBegun, SegmentCounts
from tests.sim.segment_client import REFUSED, SegmentClient
from tests.support.segment_writer import ALWAYS, SOURCE

ATTEMPTS = 6
COUNT_S = 20.0
PAUSE_S = 0.8
START, END = time_text(ALWAYS.start_ms), time_text(ALWAYS.end_ms)


class BrokerApi:
    """The methods of `palisade.Client` that a count uses, at one node."""

    def __init__(self, node: Any) -> None:
        self._lookups = LookupService(node.broker)

    async def segments_list(self, data_source: str) -> dict[str, Any]:
        return await self._lookups.listed(data_source)

    async def segments_lookup(self, data_source: str, start: str, end: str, *, on_missing: str) -> dict[str, Any]:
        return await self._lookups.lookup(data_source, start, end, on_missing)


class RowsRequest:
    """The part of an HTTP request that `SegmentCopyRoutes.rows` reads."""

    query = {"columns": "none"}  # noqa: RUF012

    def __init__(self, segment: str) -> None:
        self.match_info = dict(zip(PARTS, segment.split("/"), strict=True))


class Counter(SegmentClient):
    async def run(self) -> None:
        while self.going():
            await self.count()
            await asyncio.sleep(PAUSE_S * self.chance.random())

    async def count(self) -> bool:
        """Whether the count is complete."""
        checker = self.world.checker(SegmentCounts)
        begun = checker.begins()
        try:
            async with asyncio.timeout(COUNT_S):
                found = await count_rows(
                    lambda: self._look_up(begun),
                    lambda node, segment: self._rows(begun, node, segment),
                    attempts=ATTEMPTS,
                    rng=self.chance,
                    pause=asyncio.sleep,
                )
        except SegmentsUnavailable as error:
            checker.unavailable(begun, error.missing)
            return False
        except REFUSED as error:
            self.world.count(f"count of rows refused: {type(error).__name__}")
            return False
        checker.counted(begun, found)
        return True

    async def _look_up(self, begun: CountBegun) -> dict[str, Any]:
        host = self.chance.choice([*self.world.hosts.values()])
        found = await self.ask(host, lambda node: lookup_all(BrokerApi(node), SOURCE, START, END))
        begun.answer = found
        return found

    async def _rows(self, begun: CountBegun, node: str, segment: str) -> int:
        """As GET /v1/segments/<segment>/rows. Raises CountFailed."""

        async def rows(there: Any) -> int:
            request: Any = RowsRequest(segment)
            with self.world.checker(SegmentCopies).reading(self.world.hosts[node], segment):
                response: Any = await SegmentCopyRoutes(node, there.segments.local).rows(request)
            found: int = json.loads(response.body)["rows"]
            return found

        try:
            return await self.ask(self.world.hosts[node], rows)
        except (ConnectionError, TimeoutError) as error:
            begun.silent.add(node)
            raise CountFailed(node, "no answer") from error
        except PalisadeError as error:
            raise CountFailed(node, str(error)) from error
