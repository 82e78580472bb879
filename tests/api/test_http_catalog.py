"""/v1/catalog and /v1/procedures over HTTP: every route, every kind of invalid input (N2, N5; issue 4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import ClientSession

from palisade.api.http.server import HttpServer
from palisade.api.services import NodeServices
from palisade.service.key_values import KeyValues
from tests.support.served_node import call

COLUMNS = [{"name": "machine", "type": "string", "category": "tag"}, {"name": "pressure", "type": "double"}]


async def done(http: ClientSession, method: str, path: str, body: Any = None) -> dict[str, Any]:
    joint = "&" if "?" in path else "?"
    status, found = await call(http, method, f"{path}{joint}wait_s=5", body)
    assert status == 200, found
    assert found["state"] == "done"
    return found


async def test_database_with_a_table_is_created_read_and_dropped(http: ClientSession) -> None:
    await done(http, "PUT", "/v1/catalog/databases/plant", {"properties": {"owner": "ops"}})
    await done(http, "PUT", "/v1/catalog/tables/plant.readings", {"columns": COLUMNS})
    await done(
        http, "POST", "/v1/catalog/operations/add-column", {"table": "plant.readings", "column": "note", "type": "text"}
    )
    status, table = await call(http, "GET", "/v1/catalog/tables/plant.readings")
    assert status == 200
    assert [each["name"] for each in table["columns"]] == ["machine", "pressure", "note"]
    await call(http, "PUT", f"/v1/kv/{table['data'].replace('/', '%2F')}m1%2F2026", {"rows": 5})
    dropped = await done(http, "DELETE", "/v1/catalog/databases/plant?procedure=gone")
    assert dropped["id"] == "gone"
    assert dropped["destroyed"] == 2
    status, found = await call(http, "GET", "/v1/catalog/tables")
    assert (status, found["objects"]) == (200, [])
    status, procedure = await call(http, "GET", "/v1/procedures/gone")
    assert [each["step"] for each in procedure["steps"]] == ["submitted", "prepared", "released", "destroyed", "done"]
    assert all(each["node"] == "n1" and each["revision"] for each in procedure["steps"])


async def test_unfinished_operation_returns_202_with_location(http: ClientSession, services: NodeServices) -> None:
    assert services.catalog is not None
    gate = asyncio.Event()

    async def released(revision: int) -> None:
        await gate.wait()

    services.catalog.releases.released = released
    async with http.put("/v1/catalog/roles/ops", params={"wait_s": "0.2", "procedure": "mine"}) as answer:
        assert answer.status == 202
        assert answer.headers["Location"] == "/v1/procedures/mine"
        assert (await answer.json())["state"] == "prepared"
    status, found = await call(http, "GET", "/v1/procedures?open=true")
    assert [each["id"] for each in found["procedures"]] == ["mine"]
    status, found = await call(http, "DELETE", "/v1/procedures/mine")
    assert (status, found["code"]) == (409, "catalog-not-cancellable")
    gate.set()
    status, found = await call(http, "GET", "/v1/procedures/mine?wait_s=5")
    assert (status, found["state"], found["released"]) == (200, "done", True)


async def test_repeated_request_with_an_id_is_executed_once(http: ClientSession) -> None:
    first = await done(http, "PUT", "/v1/catalog/databases/plant?procedure=once")
    again = await done(http, "PUT", "/v1/catalog/databases/plant?procedure=once")
    assert again["revision"] == first["revision"]
    status, found = await call(http, "PUT", "/v1/catalog/databases/plant")
    assert (status, found["code"]) == (409, "catalog-already-there")


async def test_every_operation_is_listed_with_its_fields(http: ClientSession) -> None:
    _, found = await call(http, "GET", "/v1/catalog")
    operations = {each["name"]: each for each in found["operations"]}
    assert {"create-table", "revoke", "deactivate-template"} < operations.keys()
    assert operations["revoke"]["keeps"]
    assert [each["name"] for each in operations["set-ttl"]["fields"]] == ["path", "ttl_ms"]


BAD: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/v1/catalog/operations/nothing", {}, 400, "create-database"),
    ("POST", "/v1/catalog/operations/create-table", {"table": "plant"}, 400, "table: "),
    ("POST", "/v1/catalog/operations/create-table", [1], 400, "not a JSON object"),
    ("POST", "/v1/catalog/operations/create-table", {"table": "a.b", "columns": 1.5}, 400, "columns: is 1.5"),
    ("POST", "/v1/catalog/operations/set-ttl", {"path": "plant", "ttl_ms": 1.5}, 400, "ttl_ms: 1.5"),
    ("PUT", "/v1/catalog/nothing/x", None, 404, "there are databases"),
    ("GET", "/v1/catalog/nothing", None, 404, "there are databases"),
    ("GET", "/v1/catalog/tables/a%2Fb", None, 404, "a/b"),
    ("GET", "/v1/catalog/tables?limit=0", None, 400, "limit: 0"),
    ("GET", "/v1/catalog/tables?limit=1001", None, 400, "limit: 1001"),
    ("GET", "/v1/catalog/tables?what=1", None, 400, "what"),
    ("PUT", "/v1/catalog/template-paths/plant", None, 400, "by operations"),
    ("PUT", "/v1/catalog/databases/plant", {"database": "other"}, 400, "database: differs between body and path"),
    ("PUT", "/v1/catalog/databases/plant?wait_s=soon", None, 400, "wait_s: "),
    ("PUT", "/v1/catalog/databases/plant?wait_s=nan", None, 400, "wait_s: "),
    ("PUT", "/v1/catalog/databases/plant?procedure=a%2Fb", None, 400, "procedure: "),
    ("PUT", "/v1/catalog/databases/-a", None, 400, "database: "),
    ("DELETE", "/v1/catalog/databases/plant", None, 404, "there is no database plant"),
    ("GET", "/v1/procedures/nothing", None, 404, "there is no procedure nothing"),
    ("DELETE", "/v1/procedures/nothing", None, 404, "there is no procedure nothing"),
    ("GET", "/v1/procedures?limit=-1", None, 400, "limit: -1"),
    ("GET", "/v1/procedures/%FF%00", None, 404, "there is no procedure"),
    ("GET", "/v1/procedures/" + "x" * 5000, None, 413, "limit is"),
    ("GET", "/v1/catalog/tables/%FF", None, 404, "there is no"),
    ("GET", "/v1/catalog/tables/" + "x" * 5000, None, 413, "limit is"),
    ("GET", "/v1/catalog/tables?below=%FF", None, 200, ""),
    ("GET", "/v1/catalog/tables?below=%ED%A0%80&after=%00", None, 200, ""),
    ("PUT", "/v1/catalog/databases/%FF", None, 400, "database: "),
    (
        "POST",
        "/v1/catalog/operations/grant",
        {"subject": "user:a", "privilege": "read", "prefix": "\ud800"},
        400,
        "prefix: ",
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"), BAD, ids=[f"{row[0]} {row[1]} {row[4]}" for row in BAD]
)
async def test_malformed_request_is_refused_naming_the_field(
    http: ClientSession, method: str, path: str, body: Any, status: int, text: str
) -> None:
    found_status, found = await call(http, method, path, body)
    assert found_status == status, found
    assert text in found.get("detail", "")


async def test_half_a_body_and_a_nested_one_are_refused(http: ClientSession) -> None:
    headers = {"Content-Type": "application/json"}
    for body in (b'{"columns": [', b"[" * 100_000, b"\xff", b'{"a": 1} {"b": 2}'):
        async with http.put("/v1/catalog/databases/plant", data=body, headers=headers) as answer:
            assert answer.status == 400, body[:20]


async def test_node_without_a_catalog_refuses_catalog_requests(service: KeyValues) -> None:
    server = HttpServer(NodeServices(service), "demo", "n1")
    await server.start("127.0.0.1", 0)
    async with ClientSession(f"http://127.0.0.1:{server.port}") as http:
        status, found = await call(http, "GET", "/v1/procedures")
    await server.close()
    assert status == 400
    assert "keeps no catalog" in found["detail"]


async def test_metrics_count_procedures_by_end(http: ClientSession) -> None:
    await done(http, "PUT", "/v1/catalog/databases/plant")
    await call(http, "PUT", "/v1/catalog/databases/plant")
    async with http.get("/metrics") as answer:
        text = await answer.text()
    assert 'palisade_procedures_total{state="done"} 1' in text
    assert 'palisade_procedures_total{state="failed"} 1' in text
    assert "palisade_procedures_open 0" in text
