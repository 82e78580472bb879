"""Counts of the rows of segments that run while nodes stop, start and move their copies (S3; issue 17).

Each count has to return every row. No answer of a broker may report a segment as missing; this is stricter than
necessary for a query, which would retry.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any

from palisade.base.http_request import HttpRequests
from palisade.cli.query import TIMEOUT_S, DataNodes
from palisade.client import Client
from palisade.client.segment_query import AskNode, Counted, count_rows, lookup_all

ATTEMPTS = 8
"""Within about 6 s, which is longer than a change waits for the lease of a dead node."""


class WrongCount(AssertionError):
    """A count returned another number, or a broker reported a missing segment."""


class QueryCounts:
    """Use it with `async with`. `rows`: what each count must return."""

    def __init__(self, streams: list[str], data_source: str, start: str, end: str, rows: int) -> None:
        self.streams, self.rows = streams, rows
        self.done = 0
        self.repeated = 0
        """Number of counts that needed more than one answer of a broker."""
        self._where = data_source, start, end
        self._requests = HttpRequests(timeout_s=TIMEOUT_S)

    async def __aenter__(self) -> QueryCounts:
        self._client = await Client(self.streams, timeout_s=15.0).__aenter__()
        self.ask = DataNodes(self._client, self._requests, asyncio.get_running_loop().time).rows
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()
        await self._requests.close()

    async def one(self, ask: AskNode | None = None) -> Counted:
        """Raises WrongCount, SegmentsUnavailable and the client's errors."""
        found = await count_rows(
            self._lookup, ask or self.ask, attempts=ATTEMPTS, rng=random.Random(), pause=asyncio.sleep
        )
        if found.rows != self.rows:
            raise WrongCount(f"{found.rows} rows instead of {self.rows}, at revision {found.revision}")
        self.done += 1
        self.repeated += found.attempts > 1
        return found

    async def _lookup(self) -> Any:
        found = await lookup_all(self._client, *self._where)
        if found["missing"]:
            raise WrongCount(f"missing at revision {found['revision']}: {', '.join(found['missing'])}")
        return found

    async def during(self, work: Awaitable[Any], at_once: int = 1, pause_s: float = 0.0) -> int:
        """Counts repeatedly, with this pause, until `work` has ended, and once more after it.

        Returns the number of counts before the end. Raises as `one` and `work`.
        """
        before = self.done
        task = asyncio.ensure_future(work)

        async def counts() -> None:
            while not task.done():
                await self.one()
                await asyncio.sleep(pause_s)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(counts())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            task.cancel()
        meanwhile = self.done - before
        await task
        await self.one()
        return meanwhile


def interrupted(ask: AskNode, event: Callable[[], Awaitable[None]], after: int) -> AskNode:
    """`ask`, with `event` before request number `after` + 1."""
    asked = 0

    async def asks(node: str, segment: str) -> int:
        nonlocal asked
        asked += 1
        if asked == after + 1:
            await event()
        return await ask(node, segment)

    return asks
