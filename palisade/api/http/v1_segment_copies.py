"""/v1/segments/copies: the copies of segments on this node. /v1/segments/<segment>/file, /rows: one of them."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from palisade.api.http.request_body import a_number, a_text, query_of
from palisade.api.http.v1_keys import RAW_TYPE, answer
from palisade.segments.holder import SegmentHolder
from palisade.segments.local_segments import LocalSegments
from palisade.segments.names import checked_name
from palisade.segments.realtime import RealtimeIngester
from palisade.segments.realtime_held import Held
from palisade.segments.rows import columns_of, columns_of_rows
from palisade.segments.verification import PARQUET
from palisade.segments.view import copies_view
from palisade.wire.error_codes import BadRequest
from palisade.wire.segment_errors import NoRows, NoSuchSegment

PARTS = ("data_source", "start", "end", "version", "partition")
SEGMENT = "/".join(f"{{{part}}}" for part in PARTS)
PARQUET_TYPE = "application/vnd.apache.parquet"
LIMIT = 1_000
LIMIT_MAX = 100_000


class SegmentCopyRoutes:
    def __init__(self, node: str, local: LocalSegments) -> None:
        self._node, self._holder, self._realtime = node, local.holder, local.realtime

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/segments/copies", self.all, allow_head=False),
            web.get(f"/v1/segments/{SEGMENT}/file", self.content, allow_head=False),
            web.get(f"/v1/segments/{SEGMENT}/rows", self.rows, allow_head=False),
        ]

    async def all(self, request: web.Request) -> web.Response:
        limit = query_of(request, {"limit": a_number}).get("limit", LIMIT)
        if not 0 <= limit <= LIMIT_MAX:
            raise BadRequest(f"limit: {limit} is out of range; give 0 to {LIMIT_MAX}")
        return answer(copies_view(self._node, self._holder, limit))

    async def content(self, request: web.Request) -> web.Response:
        """The file as it is stored. `digest`: only if the segment has this one."""
        digest = query_of(request, {"digest": a_text}).get("digest")
        content, held = await self._keeper.read(checked_name(name_in(request)), digest)
        kind = PARQUET_TYPE if content.startswith(PARQUET) else RAW_TYPE
        return web.Response(body=content, content_type=kind, headers={"ETag": f'"{held.digest}"'})

    async def rows(self, request: web.Request) -> web.Response:
        """Shape `SegmentRows`, of the version in the segment's record. `columns=none` leaves the columns out."""
        columns = query_of(request, {"columns": a_text}).get("columns", "all")
        if columns not in ("all", "none"):
            raise BadRequest(f"columns: {columns[:60]!r} is neither all nor none")
        name = checked_name(name_in(request))
        with self._keeper.readers.reading(name):
            if (realtime := self._realtime) is not None and (growing := realtime.served(name)) is not None:
                return answer(await self._position(realtime, growing, columns))
            content, held = await self._keeper.read_recorded(name)
            rows = self._keeper.segment_store.verifier.rows(held.digest)
            if rows is None:
                raise NoRows(f"segment {name} is no Parquet file, so it has no rows to count: publish Parquet files")
            view: dict[str, Any] = {"node": self._node, "segment": name, "digest": held.digest, "rows": rows}
            if columns == "all":
                view["columns"] = await asyncio.to_thread(columns_of, content)
        return answer(view)

    async def _position(self, realtime: RealtimeIngester, held: Held, columns: str) -> dict[str, Any]:
        """Of a realtime segment: how many rows are stored now. Raises RealtimeDamaged."""
        log = held.log
        view: dict[str, Any] = {"node": self._node, "segment": held.name, "digest": "", "rows": log.rows}
        view["realtime"] = True
        if columns == "all":
            values = await realtime.values(held)
            view["rows"] = len(values)
            view["columns"] = await asyncio.to_thread(columns_of_rows, log.header.columns, values)
        return view

    @property
    def _keeper(self) -> SegmentHolder:
        """Raises NoSuchSegment."""
        if self._holder is None:
            raise NoSuchSegment("this node stores no segments: it runs without --segments")
        return self._holder


def name_in(request: web.Request) -> str:
    """The name of the segment in the path, not validated."""
    return "/".join(request.match_info[part] for part in PARTS)
