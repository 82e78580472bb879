"""/v1/partitions: the partitions of which this node stores copies, and their content, for other nodes and for
clients."""

from __future__ import annotations

from aiohttp import web

from palisade.api.http.request_body import a_number, a_text, query_of
from palisade.api.http.v1_keys import RAW_TYPE, answer
from palisade.segments.holder import PartitionHolder
from palisade.segments.names import checked_name
from palisade.segments.view import partitions_view
from palisade.wire.error_codes import BadRequest
from palisade.wire.segment_errors import NoSuchPartition

LIMIT = 1_000
LIMIT_MAX = 100_000


class PartitionRoutes:
    """`holder` None: this node stores none."""

    def __init__(self, node: str, holder: PartitionHolder | None) -> None:
        self._node, self._holder = node, holder

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/partitions", self.all, allow_head=False),
            web.get("/v1/partitions/{table}/{day}", self.content, allow_head=False),
        ]

    async def all(self, request: web.Request) -> web.Response:
        limit = query_of(request, {"limit": a_number}).get("limit", LIMIT)
        if not 0 <= limit <= LIMIT_MAX:
            raise BadRequest(f"limit: {limit} is out of range; give 0 to {LIMIT_MAX}")
        return answer(partitions_view(self._node, self._holder, limit))

    async def content(self, request: web.Request) -> web.Response:
        """`digest`: only if the partition has this version. The rows: see `palisade/catalog/demo/entries.py`."""
        digest = query_of(request, {"digest": a_text}).get("digest")
        name = checked_name(f"{request.match_info['table']}/{request.match_info['day']}")
        if self._holder is None:
            raise NoSuchPartition(f"node {self._node} stores no partitions: it runs without --partitions")
        content, held = await self._holder.read(name, digest)
        return web.Response(body=content, content_type=RAW_TYPE, headers={"ETag": f'"{held.digest}"'})
