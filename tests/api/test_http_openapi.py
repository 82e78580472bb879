"""The OpenAPI document matches the API: every route is documented, every documented route exists, responses fit
(N2)."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession

from palisade.api.http.server import HttpServer
from palisade.api.http.v1_segment_copies import SEGMENT
from tests.support.segment_names import name

METHODS = {"GET", "PUT", "POST", "PATCH", "DELETE"}


@pytest.fixture
async def document(http: ClientSession) -> dict[str, Any]:
    async with http.get("/openapi.json") as answer:
        found: dict[str, Any] = await answer.json()
    return found


def documented(document: dict[str, Any]) -> set[tuple[str, str]]:
    return {(method.upper(), path) for path, item in document["paths"].items() for method in item}


def served(server: HttpServer) -> set[tuple[str, str]]:
    return {
        (route.method, route.resource.canonical)
        for route in server.app.router.routes()
        if route.resource is not None and route.method in METHODS
    }


async def test_every_route_is_documented_and_every_documented_one_exists(
    server: HttpServer, document: dict[str, Any]
) -> None:
    assert served(server) == documented(document)


async def test_every_reference_of_the_document_leads_somewhere(document: dict[str, Any]) -> None:
    def check(value: Any) -> None:
        if isinstance(value, list):
            for each in value:
                check(each)
        elif isinstance(value, dict):
            for name, inner in value.items():
                if name == "$ref":
                    target: Any = document
                    for part in inner.removeprefix("#/").split("/"):
                        target = target[part]
                else:
                    check(inner)

    check(document)


async def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for item in document["paths"].values() for operation in item.values()]
    assert len(ids) == len(set(ids))


def schema_of(document: dict[str, Any], method: str, path: str, status: int, content_type: str) -> dict[str, Any]:
    responses = document["paths"][path][method.lower()]["responses"]
    response = responses.get(str(status)) or responses["default"]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rpartition("/")[2]]
    schema: dict[str, Any] = response["content"][content_type]["schema"]
    return schema


EXAMPLES: list[tuple[str, str, str, Any]] = [
    ("PUT", "/v1/kv/{key}", "/v1/kv/a?prev_kv=true", b"\xff\x00"),
    ("PUT", "/v1/kv/{key}", "/v1/kv/a?prev_kv=true", b"text"),
    ("GET", "/v1/kv", "/v1/kv?prefix=", None),
    ("POST", "/v1/put", "/v1/put", {"key": "b", "value_base64": "/wA="}),
    ("POST", "/v1/range", "/v1/range", {"prefix": True}),
    ("POST", "/v1/txn", "/v1/txn", {"then": [{"put": {"key": "c"}}, {"range": {"key": "b"}}, {"txn": {}}]}),
    ("POST", "/v1/delete", "/v1/delete", {"key": "c", "prev_kv": True}),
    ("DELETE", "/v1/kv/{key}", "/v1/kv/b?prev_kv=1", None),
    ("DELETE", "/v1/kv", "/v1/kv?prefix=zz", None),
    ("GET", "/v1/kv/{key}", "/v1/kv/nothing", None),
    ("GET", "/v1/kv/{key}", "/v1/kv/a?count_only=true", None),
    ("POST", "/v1/leases", "/v1/leases", {"ttl_s": 60, "id": 5}),
    ("GET", "/v1/leases", "/v1/leases", None),
    ("GET", "/v1/leases/{id}", "/v1/leases/5", None),
    ("POST", "/v1/leases/{id}/keep-alive", "/v1/leases/5/keep-alive", None),
    ("DELETE", "/v1/leases/{id}", "/v1/leases/0x5", None),
    ("GET", "/v1/leases/{id}", "/v1/leases/5", None),
    ("POST", "/v1/compact", "/v1/compact", {"revision": 2}),
    ("POST", "/v1/range", "/v1/range", {"key": "a", "revision": 1}),
    ("GET", "/v1/digest", "/v1/digest", None),
    ("GET", "/v1/alarms", "/v1/alarms", None),
    ("DELETE", "/v1/alarms/quota", "/v1/alarms/quota", None),
    ("GET", "/v1/status", "/v1/status", None),
    ("GET", "/v1/members", "/v1/members", None),
    ("POST", "/v1/members", "/v1/members", {"id": "n2", "incarnation": "x", "addresses": {"peer": "127.0.0.1:1"}}),
    ("POST", "/v1/members/{id}/promote", "/v1/members/n2/promote", None),
    ("DELETE", "/v1/members/{id}", "/v1/members/n2", None),
    ("DELETE", "/v1/members/{id}", "/v1/members/n9", None),
    ("POST", "/v1/leader/transfer", "/v1/leader/transfer", None),
    ("GET", "/v1/segments/copies", "/v1/segments/copies", None),
    ("GET", f"/v1/segments/{SEGMENT}/file", f"/v1/segments/{name(1)}/file", None),
    ("GET", f"/v1/segments/{SEGMENT}/rows", f"/v1/segments/{name(1)}/rows", None),
    ("GET", "/v1/scenarios", "/v1/scenarios", None),
    ("GET", "/v1/scenarios/{name}", "/v1/scenarios/join", None),
    ("POST", "/v1/scenarios/{name}", "/v1/scenarios/join", None),
    ("GET", "/v1/catalog", "/v1/catalog", None),
    ("PUT", "/v1/catalog/{collection}/{name}", "/v1/catalog/databases/plant", {"properties": {"owner": "ops"}}),
    ("PUT", "/v1/catalog/{collection}/{name}", "/v1/catalog/databases/plant", None),
    ("POST", "/v1/catalog/operations/{operation}", "/v1/catalog/operations/set-ttl", {"path": "plant", "ttl_ms": 5}),
    ("POST", "/v1/catalog/operations/{operation}", "/v1/catalog/operations/nothing", {}),
    ("GET", "/v1/catalog/{collection}", "/v1/catalog/databases", None),
    ("GET", "/v1/catalog/{collection}/{name}", "/v1/catalog/databases/plant", None),
    ("DELETE", "/v1/catalog/{collection}/{name}", "/v1/catalog/ttl/plant?procedure=x&wait_s=2", None),
    ("GET", "/v1/procedures", "/v1/procedures?limit=5", None),
    ("GET", "/v1/procedures/{id}", "/v1/procedures/x", None),
    ("DELETE", "/v1/procedures/{id}", "/v1/procedures/x", None),
    ("GET", "/v1/fencing", "/v1/fencing", None),
    ("GET", "/v1/fenced/{key}", "/v1/fenced/a", None),
    ("GET", "/v1/regions", "/v1/regions", None),
    ("GET", "/v1/regions/{name}", "/v1/regions/palisade", None),
    ("PUT", "/v1/regions/{name}", "/v1/regions/cfg", {"prefix": "/cfg/", "policy": "safe_default", "default": "x"}),
    ("PUT", "/v1/regions/{name}", "/v1/regions/cfg", {"prefix_base64": "/w==", "mode": "eventual"}),
    ("PATCH", "/v1/regions/{name}", "/v1/regions/cfg", {"policy": "refetch"}),
    ("DELETE", "/v1/regions/{name}", "/v1/regions/cfg", None),
    ("DELETE", "/v1/regions/{name}", "/v1/regions/cfg", None),
    ("GET", "/livez", "/livez", None),
    ("GET", "/readyz", "/readyz", None),
    ("GET", "/version", "/version", None),
    ("GET", "/health", "/health", None),
    ("GET", "/health", "/health?exclude=NOSPACE&serializable=true", None),
    ("POST", "/v3/kv/put", "/v3/kv/put", {"key": "YQ=="}),
    ("POST", "/v3/kv/put", "/v3/kv/put", {"key": "*"}),
    ("POST", "/v3/lease/keepalive", "/v3/lease/keepalive", {"ID": 9}),
    ("POST", "/v3/maintenance/status", "/v3/maintenance/status", {}),
    ("POST", "/v3/maintenance/alarm", "/v3/maintenance/alarm", {}),
    ("POST", "/v3/cluster/member/list", "/v3/cluster/member/list", {}),
]


async def test_answers_fit_their_schemas(http: ClientSession, document: dict[str, Any]) -> None:
    for method, path, url, body in EXAMPLES:
        given = {"data": body} if isinstance(body, bytes) else {"json": body} if body is not None else {}
        async with http.request(method, url, **given) as answer:
            shape = json.loads(await answer.text())
            schema = schema_of(document, method, path, answer.status, answer.content_type)
        jsonschema.validate(shape, {**schema, "components": document["components"]})


async def test_document_itself_is_of_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    for title, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
        assert title[0].isupper()
