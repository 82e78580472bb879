"""/v1/segments/realtime: opens realtime segments on this node. /v1/segments/<segment>/rows, /close: their rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from aiohttp import web

from palisade.api.http.authorization_header import client_timeout_s
from palisade.api.http.request_body import query_of
from palisade.api.http.v1_catalog import body_of
from palisade.api.http.v1_keys import answer
from palisade.api.http.v1_segment_copies import SEGMENT, name_in
from palisade.base.http_request import TIMEOUT_HEADER
from palisade.catalog.errors import BadField
from palisade.catalog.realtime_rows import columns_from, columns_shape
from palisade.catalog.row_format import a_count, a_name, shown, text_up_to
from palisade.catalog.segment_json import interval_of
from palisade.segments.names import checked_name
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_handoff import state_in
from palisade.segments.realtime_held import Held
from palisade.wire.error_codes import BadRequest
from palisade.wire.segment_errors import NoSuchSegment, RealtimeOpening

WRITER_CHARACTERS_MAX = 128
OPEN_SHARE = 0.8
"""Part of the client's timeout after which an opening that is not finished is answered with RealtimeOpening."""
NO_KNOWN_CAUSE = (
    "a change may wait for the lease of a node that does not answer, which takes a few seconds; 'palisade fencing' "
    "shows that node"
)

T = TypeVar("T")


class RealtimeRoutes:
    """On every data node. `ingester` None: this node stores no segments."""

    def __init__(self, node: str, ingester: RealtimeIngester | None) -> None:
        self._node, self._found = node, ingester

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/segments/realtime", self.all, allow_head=False),
            web.post("/v1/segments/realtime", self.open),
            web.post(f"/v1/segments/{SEGMENT}/rows", self.append),
            web.post(f"/v1/segments/{SEGMENT}/close", self.close),
        ]

    async def all(self, request: web.Request) -> web.Response:
        query_of(request, {})
        held = [] if self._found is None else self._found.held.values()
        damaged = [] if self._found is None else self._found.logs.damaged.items()
        return answer(
            {
                "node": self._node,
                "segments": sorted((self._view(each) for each in held), key=lambda view: view["segment"]),
                "damaged": {directory: each.why for directory, each in damaged},
            }
        )

    async def open(self, request: web.Request) -> web.Response:
        given = await body_of(request)
        source, interval = a_name(given.pop("data_source", None), "data_source"), _interval(given)
        columns, replicas = columns_from(given.pop("columns", None)), a_count(given.pop("replicas", 1), "replicas")
        writer = text_up_to(WRITER_CHARACTERS_MAX)(given.pop("writer", ""), "writer")
        _nothing_else(given)
        opening = self._ingester.open(source, interval, columns, replicas, writer)
        return answer(self._view(await self._in_time(request, opening)))

    async def _in_time(self, request: web.Request, opening: Awaitable[T]) -> T:
        """The result of `opening`. Raises RealtimeOpening before the timeout that the client announced; the opening
        continues."""
        client_s = client_timeout_s(request.headers.get(TIMEOUT_HEADER))
        if client_s is None:
            return await opening
        limit_s = OPEN_SHARE * client_s
        limit = asyncio.timeout(limit_s)
        try:
            async with limit:
                return await opening
        except TimeoutError:
            if not limit.expired():
                raise
            cause = self._ingester.trouble() or NO_KNOWN_CAUSE
            raise RealtimeOpening(
                f"node {self._node} has not opened the segment within {limit_s:.1f} s and continues to open it: "
                f"{cause}. Repeat the request at the same node with the same writer; without a writer, a repetition "
                "opens another segment"
            ) from None

    async def append(self, request: web.Request) -> web.Response:
        given, name = await body_of(request), checked_name(name_in(request))
        rows, position = given.pop("rows", None), given.pop("position", None)
        _nothing_else(given)
        if position is not None and type(position) is not int:
            raise BadField(f"position: {shown(position)} is not a number of rows")
        return answer({"node": self._node, "segment": name, "rows": await self._ingester.append(name, rows, position)})

    async def close(self, request: web.Request) -> web.Response:
        _nothing_else(await body_of(request))
        return answer(self._view(await self._ingester.close_segment(checked_name(name_in(request)))))

    def _view(self, held: Held) -> dict[str, Any]:
        """Shape `RealtimeSegment`."""
        header = held.log.header
        return {
            "node": self._node,
            "segment": held.name,
            "rows": held.log.rows,
            "state": state_in(self._ingester, held).value,
            "columns": columns_shape(header.columns),
            "writer": header.writer,
            "error": held.error or None,
        }

    @property
    def _ingester(self) -> RealtimeIngester:
        """Raises NoSuchSegment."""
        if self._found is None:
            raise NoSuchSegment(f"node {self._node} receives no rows: it runs without --segments")
        return self._found


def _interval(given: dict[str, Any]) -> Any:
    return interval_of(given.pop("from", None), given.pop("to", None))


def _nothing_else(given: dict[str, Any]) -> None:
    """Raises BadRequest."""
    if given:
        raise BadRequest(f"the body: there is no field {min(given)[:60]!r}")
