"""The catalog over the stream: as a program uses it, and what a hostile one sends (issue 4)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.catalog.errors import CatalogError, NoSuchProcedure, NotThere
from palisade.client import Client
from palisade.metastore.errors import MetastoreError

COLUMNS = [{"name": "value", "type": "double"}]


async def test_program_creates_reads_and_drops_objects(client: Client) -> None:
    made = await client.catalog_do("create-database", {"database": "plant"}, procedure="p1", wait_s=2)
    assert (made["state"], made["released"]) == ("done", True)
    for number in range(3):
        fields = {"table": f"plant.t{number}", "columns": COLUMNS}
        await client.catalog_do("create-table", fields, procedure=f"t{number}", wait_s=2)
    assert [each["name"] for each in await client.catalog_objects("tables")] == ["plant.t0", "plant.t1", "plant.t2"]
    await client.catalog_do("drop-table", {"table": "plant.t1"}, procedure="p2", wait_s=2)
    with pytest.raises(NotThere):
        await client.catalog_object("tables", "plant.t1")
    with pytest.raises(NotThere, match="there is no table"):
        await client.catalog_do("drop-table", {"table": "plant.t1"}, procedure="p3", wait_s=2)
    assert (await client.procedure("p3"))["error"]["code"] == "catalog-not-there"
    assert [each["id"] for each in await client.procedures(limit=2)] == ["p3", "p2"]


async def test_list_of_many_pages_is_complete(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.api.stream.catalog_calls.LIMIT", 2)
    for number in range(5):
        await client.catalog_do("create-role", {"role": f"r{number}"}, procedure=f"p{number}", wait_s=2)
    assert [each["name"] for each in await client.catalog_objects("roles")] == [f"r{number}" for number in range(5)]


HOSTILE: list[tuple[str, list[Any]]] = [
    ("catalog_do", []),
    ("catalog_do", [5, {}, "p", 0]),
    ("catalog_do", ["create-role", [], "p", 0]),
    ("catalog_do", ["create-role", {"role": b"ops"}, "p", 0]),
    ("catalog_do", ["create-role", {b"role": "ops"}, "p", 0]),
    ("catalog_do", ["create-role", {"role": "ops"}, "p/q", 0]),
    ("catalog_do", ["create-role", {"role": "ops"}, ["p"], 0]),
    ("catalog_do", ["create-role", {"role": "ops"}, "p", "x"]),
    ("catalog_do", ["create-role", {"role": "ops"}, "p", float("nan")]),
    ("catalog_do", ["create-role", {"role": "ops"}, "p", float("inf")]),
    ("catalog_do", ["create-role", {"role": "ops"}, "p", -1]),
    ("catalog_do", ["create-user", {"user": "a", "password": {"scheme": "scrypt"}}, "p", 0]),
    ("catalog_do", ["create-role", {"role": "x" * 100_000}, "p", 0]),
    ("catalog_objects", ["nothing", "", ""]),
    ("catalog_objects", [None, "", ""]),
    ("catalog_objects", ["tables", 5, ""]),
    ("catalog_object", ["tables", None]),
    ("catalog_object", ["tables", "x" * 10_000]),
    ("procedures", [True, float("nan")]),
    ("procedures", [True, "x"]),
    ("procedures", [True, -5]),
    ("procedure", [5, 0]),
    ("procedure", ["p", None]),
    ("procedure_cancel", [["p"]]),
]


@pytest.mark.parametrize(
    ("name", "arguments"), HOSTILE, ids=[f"{name} {arguments!r:.40}" for name, arguments in HOSTILE]
)
async def test_malformed_calls_are_refused(client: Client, name: str, arguments: list[Any]) -> None:
    with pytest.raises((CatalogError, MetastoreError)) as refused:
        await client._call(name, *arguments)
    assert "internal" not in str(refused.value)
    with pytest.raises(NoSuchProcedure):
        await client.procedure("p")
