"""/v1/fencing: which nodes may serve from their vaults, and which changes wait for which nodes. /v1/regions: which
prefixes are strict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiohttp import web

from palisade.api.http.request_body import content, fields_of, one_of, query_of, read_json
from palisade.api.http.v1_keys import answer
from palisade.service.regions import RegionAdmin, RegionReader
from palisade.vault.regions import Mode, Policy
from palisade.wire.error_codes import BadRequest
from palisade.wire.region_json import region_from, region_shape

View = Callable[[], dict[str, Any]]


class FencingRoutes:
    def __init__(self, view: View | None) -> None:
        self._view = view

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/v1/fencing", self.fencing, allow_head=False)]

    async def fencing(self, request: web.Request) -> web.Response:
        query_of(request, {})
        if self._view is None:
            raise BadRequest("this node runs without a cluster: it has no leases")
        return answer(self._view())


class RegionReads:
    """On every node that follows the cluster."""

    def __init__(self, regions: RegionReader) -> None:
        self._regions = regions

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/regions", self.list_regions, allow_head=False),
            web.get("/v1/regions/{name}", self.get, allow_head=False),
        ]

    async def list_regions(self, request: web.Request) -> web.Response:
        query_of(request, {})
        return answer(await self._regions.view())

    async def get(self, request: web.Request) -> web.Response:
        return answer(region_shape(await self._regions.get(request.match_info["name"])))


class RegionRoutes(RegionReads):
    """On members of the group."""

    def __init__(self, book: RegionAdmin) -> None:
        super().__init__(book)
        self._book = book

    def routes(self) -> list[web.RouteDef]:
        return [
            *super().routes(),
            web.put("/v1/regions/{name}", self.put),
            web.patch("/v1/regions/{name}", self.change),
            web.delete("/v1/regions/{name}", self.delete),
        ]

    async def put(self, request: web.Request) -> web.Response:
        """Responds once every node treats the prefix accordingly."""
        fields = fields_of(await read_json(request), BODY)
        if "prefix" not in fields:
            raise BadRequest("the body: give prefix, or prefix_base64; an empty one selects every key")
        if fields.get("policy") is Policy.SAFE_DEFAULT and "default" not in fields:
            raise BadRequest(
                'the body: the policy safe_default needs default, the value that a fenced node returns; it may be ""'
            )
        region = region_from(request.match_info["name"], fields)
        revision = await self._book.put(region)
        return answer({"revision": revision, "region": region_shape(region)})

    async def change(self, request: web.Request) -> web.Response:
        """Fields that the body does not name keep their values. Responds as `put`."""
        fields = fields_of(await read_json(request), BODY)
        if not fields:
            raise BadRequest(f"the body: names no field to change; known are {', '.join(BODY)}")
        revision, region = await self._book.change(request.match_info["name"], fields)
        return answer({"revision": revision, "region": region_shape(region)})

    async def delete(self, request: web.Request) -> web.Response:
        return answer({"revision": await self._book.delete(request.match_info["name"]), "deleted": 1})


BODY = {
    "prefix": content,
    "mode": one_of({mode.value: mode for mode in Mode}),
    "policy": one_of({policy.value: policy for policy in Policy}),
    "default": content,
}
