"""palisade query: queries of data nodes, with complete answers or an error."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from palisade.base.counted import counted
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.cli.credentials import shown
from palisade.cli.options import NAME, client_options, read_moment
from palisade.cli.session import REFUSED, CliSession, Failure, no_server
from palisade.client.node_addresses import addresses_in
from palisade.wire.credentials import header_of

if TYPE_CHECKING:
    from palisade.client.segment_query import Counted

TIMEOUT_S = 3.0
"""Timeout of a request to a data node; also how long a node that did not answer is not asked again."""
LEAST_S = 1.0
"""The shortest timeout of a lookup, also if less time is left until --timeout."""


@click.group()
def query() -> None:
    """Query data nodes.

    An answer is complete, or the query fails with the list of the missing segments.
    """


@query.command("count")
@click.argument("data_source", type=NAME)
@click.option(
    "--from",
    "start",
    required=True,
    type=read_moment,
    metavar="TIME",
    help="Such as 2013-03-01 or 2013-03-01T06:00Z (UTC).",
)
@click.option("--to", "end", required=True, type=read_moment, metavar="TIME", help="The end, which is excluded.")
@client_options
def count(session: CliSession, data_source: str, start: str, end: str) -> None:
    """Count the rows of DATA_SOURCE in an interval.

    A broker returns the segments; the nodes that have them return their row counts. A segment that still receives
    rows is counted up to its last stored row; --json shows that position. While rows of a segment cannot be counted,
    the count is retried; no attempt starts after --timeout.
    """
    from palisade.catalog.errors import BadField
    from palisade.cli.query_waiting import QueryWaiting
    from palisade.client.segment_query import CountProgress, CutSegment, ListCut, count_rows, lookup_all
    from palisade.wire.segment_errors import SegmentsUnavailable

    progress = CountProgress()
    waiting = QueryWaiting(progress)

    async def run(client: Any) -> Counted | SegmentsUnavailable:
        now = asyncio.get_running_loop().time
        until = now() + session.deadline_s
        async with HttpRequests(header_of(shown()), timeout_s=TIMEOUT_S) as requests, waiting.reading(client):
            nodes = DataNodes(client, requests, now)

            async def lookup() -> Any:
                return await lookup_all(client, data_source, start, end, lambda: max(until - now(), LEAST_S))

            async def pause(s: float) -> None:
                waiting.look()
                await asyncio.sleep(s)

            try:
                return await count_rows(
                    lookup,
                    nodes.rows,
                    attempts=None,
                    rng=random.Random(),
                    pause=pause,
                    progress=progress,
                    in_time=lambda: now() < until,
                )
            except SegmentsUnavailable as error:
                return error

    try:
        found = session.call(run, why=waiting.text)
    except (BadField, CutSegment, ListCut) as error:
        session.fail(Failure(REFUSED, error.code, str(error), False))
    if isinstance(found, SegmentsUnavailable):
        session.fail(no_server(found, waiting.text()))
    shape: dict[str, Any] = {
        "data_source": data_source,
        "rows": found.rows,
        "segments": found.segments,
        "revision": found.revision,
    }
    unserved = f" (without {counted(len(found.unserved), 'segment')} of replication factor 0)" if found.unserved else ""
    shape["realtime"] = [{"segment": name, "rows": rows} for name, rows in sorted(found.realtime.items())]
    session.answer({**shape, "unserved": list(found.unserved)}, f"{found.rows:,}{unserved}")


class DataNodes:
    """Requests row counts from data nodes over HTTP. Looks up the addresses once, and again for an unknown node.

    Many segments have copies on one node. If it is frozen, only the requests under way wait for it."""

    def __init__(self, client: Any, requests: HttpRequests, now: Callable[[], float]) -> None:
        """`now`: seconds on a clock that never goes back."""
        self._client, self._requests, self._now = client, requests, now
        self._addresses: dict[str, str] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        """Until when a node is not asked, and why, by node."""

    async def rows(self, node: str, segment: str) -> int:
        """Raises CountFailed."""
        from palisade.client.segment_query import CountFailed

        began = self._now()
        until, why = self._silent.get(node, (0.0, ""))
        if began < until:
            raise CountFailed(node, why)
        if node not in self._addresses:
            self._addresses |= addresses_in(await self._client.topology())
        if node not in self._addresses:
            raise CountFailed(node, "it is not in the topology")
        path = f"/v1/segments/{segment}/rows"
        try:
            answer = await self._requests.json(self._addresses[node], path, params={"columns": "none"})
        except NoAnswer as error:
            ended = self._now()
            if ended - began > TIMEOUT_S / 2:  # not a refused connection
                self._silent[node] = ended + TIMEOUT_S, str(error)
            raise CountFailed(node, str(error)) from error
        if answer.status != 200:
            raise CountFailed(node, answer.detail)
        if type(answer.content.get("rows")) is not int:
            raise CountFailed(node, "its answer has no number of rows")
        return int(answer.content["rows"])
