"""/v1/catalog and /v1/procedures: catalog objects, the operations that change them, and the progress of procedures."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from palisade.api.http.protobuf_json import FloatText
from palisade.api.http.request_body import a_flag, a_number, a_text, query_of, read_json
from palisade.api.http.v1_keys import answer
from palisade.api.services import NodeServices
from palisade.catalog.catalog_json import operations_view
from palisade.catalog.collections import Collection, collection_named
from palisade.catalog.errors import BadField
from palisade.metastore.errors import InvalidRequest
from palisade.service.catalog import LIMIT, Catalog, CatalogOutcome
from palisade.wire.error_codes import BadRequest

ACCEPTED = 202


def a_wait(value: Any, name: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise BadRequest(f"{name}: {value!r:.60} is not a number of seconds") from None


BEGIN = {"procedure": a_text, "wait_s": a_wait}
LIST = {"below": a_text, "after": a_text, "limit": a_number}
PROCEDURES = {"open": a_flag, "limit": a_number}
WAIT = {"wait_s": a_wait}


class CatalogRoutes:
    def __init__(self, services: NodeServices) -> None:
        self._services = services

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/catalog", self.overview, allow_head=False),
            web.post("/v1/catalog/operations/{operation}", self.operation),
            web.get("/v1/catalog/{collection}", self.objects, allow_head=False),
            web.get("/v1/catalog/{collection}/{name}", self.object, allow_head=False),
            web.put("/v1/catalog/{collection}/{name}", self.create),
            web.delete("/v1/catalog/{collection}/{name}", self.drop),
            web.get("/v1/procedures", self.procedures, allow_head=False),
            web.get("/v1/procedures/{id}", self.procedure, allow_head=False),
            web.delete("/v1/procedures/{id}", self.cancel),
        ]

    @property
    def _catalog(self) -> Catalog:
        found = self._services.catalog
        if found is None:
            raise InvalidRequest("this node keeps no catalog: ask a member of the cluster, listed by GET /v1/topology")
        return found

    async def overview(self, request: web.Request) -> web.Response:
        return answer(operations_view())

    async def objects(self, request: web.Request) -> web.Response:
        found = query_of(request, LIST)
        below, after, limit = found.get("below", ""), found.get("after", ""), found.get("limit", LIMIT)
        return answer(
            await self._catalog.objects(request.match_info["collection"], below=below, after=after, limit=limit)
        )

    async def object(self, request: web.Request) -> web.Response:
        return answer(await self._catalog.object(request.match_info["collection"], request.match_info["name"]))

    # Operations.

    async def operation(self, request: web.Request) -> web.Response:
        return await self._begin(request, request.match_info["operation"], await body_of(request))

    async def create(self, request: web.Request) -> web.Response:
        collection = collection_named(request.match_info["collection"])
        return await self._begin(
            request, needed(collection.create, collection), with_name(collection, request, await body_of(request))
        )

    async def drop(self, request: web.Request) -> web.Response:
        collection = collection_named(request.match_info["collection"])
        return await self._begin(
            request, needed(collection.drop, collection), with_name(collection, request, await body_of(request))
        )

    async def _begin(self, request: web.Request, kind: str, fields: dict[str, Any]) -> web.Response:
        found = query_of(request, BEGIN)
        outcome = await self._catalog.do(kind, fields, found.get("procedure"), found.get("wait_s"))
        return self._answer(outcome)

    def _answer(self, outcome: CatalogOutcome) -> web.Response:
        """202 while it is not finished, or not released to every node: Location names the procedure."""
        procedure = outcome.procedure
        headers = {"Location": f"/v1/procedures/{procedure.id}"}
        shape = self._catalog.view(procedure, released=outcome.released)
        return answer(shape, 200 if outcome.settled else ACCEPTED, headers)

    # Procedures.

    async def procedures(self, request: web.Request) -> web.Response:
        found = query_of(request, PROCEDURES)
        limit = found.get("limit", 100)
        if not 1 <= limit <= LIMIT:
            raise BadField(f"limit: {limit} is not between 1 and {LIMIT}")
        return answer({"procedures": await self._catalog.procedures(open_only=found.get("open", False), limit=limit)})

    async def procedure(self, request: web.Request) -> web.Response:
        """Immediately, or with `wait_s` when it has ended and is released."""
        id_, wait_s = request.match_info["id"], query_of(request, WAIT).get("wait_s", 0)
        return answer(await self._catalog.procedure(id_, wait_s))

    async def cancel(self, request: web.Request) -> web.Response:
        return answer(await self._catalog.cancel(request.match_info["id"]))


async def body_of(request: web.Request) -> dict[str, Any]:
    """The fields of an operation; an empty body is an empty object."""
    found = plain(await read_json(request))
    if found is None:
        return {}
    if type(found) is not dict:
        raise BadRequest("the body: is not a JSON object")
    return found


def plain(value: Any) -> Any:
    """Converts numbers that are not whole to floats: the reader of the API keeps their text."""
    if isinstance(value, FloatText):
        return float(value)
    if type(value) is list:
        return [plain(each) for each in value]
    if type(value) is dict:
        return {name: plain(each) for name, each in value.items()}
    return value


def needed(kind: str, collection: Collection) -> str:
    if not kind:
        raise BadRequest(f"{collection.name} are changed by operations: POST /v1/catalog/operations/...")
    return kind


def with_name(collection: Collection, request: web.Request, fields: dict[str, Any]) -> dict[str, Any]:
    name = request.match_info["name"]
    if fields.setdefault(collection.field, name) != name:
        raise BadRequest(f"{collection.field}: differs between body and path")
    return fields
