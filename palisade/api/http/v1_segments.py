"""/v1/segments: which segments serve a query, what is known of each, and the changes of their records."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from palisade.api.http.request_body import a_number, a_text, query_of
from palisade.api.http.v1_catalog import body_of
from palisade.api.http.v1_keys import answer
from palisade.api.http.v1_segment_copies import SEGMENT, name_in
from palisade.api.segment_service import LIMIT_MAX, SegmentChanges, SegmentLookups
from palisade.wire.error_codes import BadRequest

LOOKUP = {"data_source": a_text, "from": a_text, "to": a_text, "on_missing": a_text}
LIST = {"data_source": a_text, "limit": a_number}


class SegmentLookupRoutes:
    """On every node with a vault."""

    def __init__(self, lookups: SegmentLookups) -> None:
        self._lookups = lookups

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/segments", self.listed, allow_head=False),
            web.get("/v1/segments/lookup", self.lookup, allow_head=False),
            web.get(f"/v1/segments/{SEGMENT}", self.one, allow_head=False),
        ]

    async def listed(self, request: web.Request) -> web.Response:
        found = query_of(request, LIST)
        limit = found.get("limit", LIMIT_MAX)
        if not 0 <= limit <= LIMIT_MAX:
            raise BadRequest(f"limit: {limit} is out of range; give 0 to {LIMIT_MAX}")
        return answer(await self._lookups.listed(found.get("data_source", ""), limit))

    async def lookup(self, request: web.Request) -> web.Response:
        found = query_of(request, LOOKUP)
        if missing := [name for name in ("data_source", "from", "to") if name not in found]:
            raise BadRequest(f"the query: {missing[0]} is missing")
        policy = found.get("on_missing", "fail")
        return answer(await self._lookups.lookup(found["data_source"], found["from"], found["to"], policy))

    async def one(self, request: web.Request) -> web.Response:
        return answer(await self._lookups.one(name_in(request)))


class SegmentChangeRoutes:
    """On members. Each body names its data source."""

    def __init__(self, changes: SegmentChanges) -> None:
        self._changes = changes

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/segments/publish", self.publish),
            web.post("/v1/segments/mark-unused", self.mark_unused),
            web.post("/v1/segments/set-replicas", self.set_replicas),
            web.post("/v1/segments/reset-loaded", self.reset_loaded),
            web.post("/v1/segments/give-up", self.give_up),
        ]

    async def publish(self, request: web.Request) -> web.Response:
        given = await body_of(request)
        source, segments = given.pop("data_source", None), given.pop("segments", None)
        nothing_else(given)
        return answer(await self._changes.publish(source, segments))

    async def mark_unused(self, request: web.Request) -> web.Response:
        given = await body_of(request)
        return answer(await self._changes.mark_unused(given.pop("data_source", None), given))

    async def set_replicas(self, request: web.Request) -> web.Response:
        given = await body_of(request)
        source, replicas = given.pop("data_source", None), given.pop("replicas", None)
        return answer(await self._changes.set_replicas(source, replicas, given))

    async def reset_loaded(self, request: web.Request) -> web.Response:
        given = await body_of(request)
        source = given.pop("data_source", None)
        nothing_else(given)
        return answer(await self._changes.reset_loaded(source))

    async def give_up(self, request: web.Request) -> web.Response:
        given = await body_of(request)
        names = ("data_source", "segment", "by", "reason")
        values = [given.pop(name, None) for name in names]
        nothing_else(given)
        return answer(await self._changes.give_up(*values))


def nothing_else(given: dict[str, Any]) -> None:
    """Raises BadRequest."""
    if given:
        raise BadRequest(f"the body: there is no field {min(given)[:60]!r}")
