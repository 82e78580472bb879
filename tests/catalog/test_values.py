"""Values of the catalog: written values can be read; invalid ones are refused by name (hostile input: wrong type, huge,
half, foreign)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.base.errors import by_code
from palisade.catalog import keys
from palisade.catalog.database import Database
from palisade.catalog.device import Device, Series
from palisade.catalog.errors import BadField, CatalogError, DamagedRow
from palisade.catalog.locks import are_free, least
from palisade.catalog.operations.all import KINDS, kind_named
from palisade.catalog.passwords import fits, sealed
from palisade.catalog.permissions import PermissionGrant, Subject
from palisade.catalog.procedure_record import from_bytes, to_bytes
from palisade.catalog.row_format import ROW_BYTES_MAX
from palisade.catalog.table import CatalogTable, Column
from palisade.catalog.template import Template, TemplatePath
from palisade.catalog.ttl import TtlRule
from palisade.catalog.view import CatalogView
from tests.support.catalog_world import CASES, SALT, TABLE, CatalogWorld, world_for

VALUES: list[Any] = [
    Database("plant", "o-1", {"owner": "ops"}, "p1"),
    CatalogTable(
        "plant", "readings", "o-2", "palisade.data/o-1/o-2/", (Column(1, "machine", "string", "tag"),), 2, {}, ("m1",)
    ),
    Device(
        "plant.l.p", "o-3", "palisade.data/o-1/o-3/", True, (Series("heat", "int32", "rle", "lz4"),), "meter", ("x",)
    ),
    Template("meter", (Series("volts", "double", "plain", "zstd"),)),
    TemplatePath("plant.line2", "meter"),
    CatalogView("plant.v", "plant.l.p.heat"),
    TtlRule("plant", 5),
    Subject("user", "alice", (PermissionGrant("read", "/é"),), ("ops",)),
    Subject("role", "ops"),
]


def refusal(call: Callable[[], object], kind: type[Exception]) -> str | None:
    """What it was refused with; None where it was taken. Any other error is a fault."""
    try:
        call()
    except kind as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_rows_round_trip_and_are_canonical(value: Any) -> None:
    packed = value.to_bytes()
    assert type(value).from_bytes(value.key, packed) == value
    assert packed == json.dumps(json.loads(packed), sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert value.key.startswith(keys.ROOT)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_damaged_row_is_rejected_with_its_key(value: Any) -> None:
    packed = value.to_bytes()
    whole = json.loads(packed)
    bad: list[bytes] = [b"", b"null", b"[]", b"\xff", packed[:-1], b"[" * 100_000, b'{"name": 5}']
    for name in whole:
        bad += [json.dumps({**whole, name: wrong}).encode() for wrong in (None, -1, 1.5, {"a": 1}, [[]], "x" * 2000)]
    for each in bad:
        said = refusal(lambda each=each: type(value).from_bytes(value.key, each), DamagedRow)
        assert said is None or value.key.decode() in said


def test_data_of_a_row_is_never_outside_of_the_place_for_data() -> None:
    """A drop removes what the row of a table names as its data: a forged row must not name other keys."""
    table = VALUES[1]
    for data in (
        "",
        "/",
        "palisade/catalog/",
        "palisade.data/",
        "palisade.data/a/",
        "palisade.data/a/b",
        "palisade.data//b/",
    ):
        packed = json.dumps({**json.loads(table.to_bytes()), "data": data}).encode()
        with pytest.raises(DamagedRow):
            CatalogTable.from_bytes(table.key, packed)


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("create-table", {}, "table: is missing"),
    ("create-table", {"table": "plant"}, "table: invalid path 'plant': use 2 names"),
    ("create-table", {"table": "a.b.c", "columns": []}, "table: invalid path 'a.b.c': use 2"),
    ("create-table", {"table": "../../etc", "columns": []}, "table: "),
    ("create-table", {"table": "a.b/c", "columns": []}, "table: "),
    ("create-table", {"table": "a.b", "columns": []}, "columns: is a list of 0"),
    ("create-table", {"table": "a.b", "columns": [{"name": "x", "type": "int33"}]}, "columns[0].type: 'int33'"),
    ("create-table", {"table": "a.b", "columns": [{"name": "x"}]}, "columns[0].type: is missing"),
    ("create-table", {"table": "a.b", "columns": [{"name": "x", "type": "text", "id": 3}]}, "unknown field 'id'"),
    ("create-table", {"table": "a.b", "columns": ["x"]}, "columns[0]: 'x' is not an object"),
    ("create-table", {"table": "a.b", "columns": [{"name": "x", "type": "text"}] * 2}, "columns: x is given twice"),
    ("create-table", {"table": "a.b", "columns": [{"name": f"c{n}", "type": "text"} for n in range(501)]}, "of 501"),
    ("create-table", {"table": 5, "columns": []}, "table: invalid path 5"),
    ("create-table", {"tabel": "a.b"}, "has no field 'tabel'; it has table"),
    ("create-database", {"database": "a" * 65}, "database: "),
    ("create-database", {"database": "-a"}, "database: "),
    ("create-database", {"database": "a\n"}, "database: "),
    ("create-database", {"database": "é"}, "database: "),
    ("create-database", {"database": "a", "properties": {"x": 5}}, "properties.x: 5 is not a text"),
    ("create-database", {"database": "a", "properties": {"x": "y" * 1025}}, "properties.x: has 1025"),
    ("create-database", {"database": "a", "properties": {"x": "\ud800"}}, "properties.x: is not valid Unicode"),
    ("create-device", {"device": "a.b", "series": [{"name": "s", "type": "text", "encoding": "rle"}]}, "[0].encoding"),
    ("create-device", {"device": "a.b", "series": [{"name": "s", "type": "text"}], "aligned": "yes"}, "aligned: 'yes'"),
    ("create-device", {"device": ".".join("abcdefghijklm"), "series": []}, "device: "),
    ("set-ttl", {"path": "a", "ttl_ms": 0}, "ttl_ms: 0 is not"),
    ("set-ttl", {"path": "a", "ttl_ms": True}, "ttl_ms: True is not"),
    ("set-ttl", {"path": "a", "ttl_ms": 1 << 63}, "ttl_ms: "),
    ("set-ttl", {"path": "a", "ttl_ms": 1.5}, "ttl_ms: 1.5 is not"),
    ("create-user", {"user": "alice", "password": "short"}, "password: has 5 characters"),
    ("create-user", {"user": "alice", "password": {"scheme": "plain"}}, "password: invalid credential"),
    ("grant", {"subject": "alice", "privilege": "read", "prefix": ""}, "subject: 'alice' is neither"),
    ("grant", {"subject": "user:", "privilege": "read", "prefix": ""}, "subject: "),
    ("grant", {"subject": "user:a", "privilege": "root", "prefix": ""}, "privilege: 'root' is not one of read, write"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "request_", "text"), HOSTILE, ids=[f"{kind}: {text}" for kind, _, text in HOSTILE])
def test_bad_field_is_rejected_by_its_name(kind: str, request_: dict[str, Any], text: str) -> None:
    with pytest.raises(BadField) as refused:
        KINDS[kind].checked(request_)
    assert text in str(refused.value)
    assert len(str(refused.value)) < 600


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(CASES), st.data())
def test_any_field_value_is_accepted_or_rejected(case: Any, data: st.DataObject) -> None:
    kind, request = case[1]
    name = data.draw(st.sampled_from(sorted(request)))
    given_ = {**request, name: data.draw(JSON)}
    said = refusal(lambda: KINDS[kind].checked(given_), BadField)
    assert said is None or name in said


@settings(deadline=None)
@given(JSON)
def test_any_request_is_accepted_or_rejected(given_: Any) -> None:
    for kind in KINDS.values():
        refusal(lambda kind=kind: kind.checked(given_), BadField)


def test_unknown_operation_is_rejected_with_the_known_ones() -> None:
    for name in ("drop-everything", None, 5, ["grant"]):
        with pytest.raises(BadField, match="create-database"):
            kind_named(name)


def test_oversized_row_is_rejected() -> None:
    given_ = {f"p{number}": "x" * 1024 for number in range(64)}
    big = Database("plant", "o", given_)
    assert len(big.to_bytes()) < ROW_BYTES_MAX
    with pytest.raises(BadField, match="the limit is"):
        Database("plant", "o", {f"{name}{n}": text for name, text in given_.items() for n in range(3)}).to_bytes()


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [CatalogError, *CatalogError.__subclasses__()]
    assert sorted(by_code(CatalogError)) == sorted(kind.code for kind in kinds)
    assert len(by_code(CatalogError)) == len(kinds)


# Passwords.


def test_password_fits_only_its_own_credential() -> None:
    credential = sealed("correct horse", SALT)
    assert fits("correct horse", credential)
    assert not fits("correct horsf", credential)
    assert sealed("correct horse", b"x" * 16)["hash"] != credential["hash"]
    assert "correct" not in json.dumps(credential)
    for bad in ({}, {**credential, "cost": "x"}, {**credential, "cost": 1 << 40}, {**credential, "salt": "zz"}):
        assert not fits("correct horse", bad)


# Records of procedures.


async def test_procedure_record_round_trips_in_every_state_and_a_damaged_one_is_rejected() -> None:
    world = await world_for(CASES[1][0])
    await world.submit("mine", "drop-database", database="plant")
    engine = world.engine()
    while not (procedure := await engine.read("mine")).ended:
        assert from_bytes(procedure.key, to_bytes(procedure), procedure.revision) == procedure
        whole = json.loads(to_bytes(procedure))
        for name in whole:
            for wrong in (None, 5, "x", [5], {"a": 5}):
                if name == "failed" and wrong is None:
                    continue
                packed = json.dumps({**whole, name: wrong}).encode()
                said = refusal(lambda packed=packed, key=procedure.key: from_bytes(key, packed, 7), DamagedRow)
                assert said is None or "mine" in said
        await engine._advance(procedure)
    for bad in (b"", b"{}", b"\xff", b"[]", to_bytes(procedure)[:-2]):
        with pytest.raises(DamagedRow, match="damaged procedure record"):
            from_bytes(procedure.key, bad, 7)


async def test_damaged_row_fails_the_procedure_and_is_named() -> None:
    world = CatalogWorld()
    world.put(keys.at(keys.DATABASES, "plant"), b"garbage")
    done = await world.do(TABLE[0], **TABLE[1])
    assert done.failed is not None
    assert done.failed.code == "catalog-damaged"
    assert "palisade/catalog/databases/plant" in done.failed.text
    assert world.below(keys.LOCKS) == {}


async def test_foreign_procedure_record_removes_only_removable_prefixes() -> None:
    """A prefix such as "" in a record would be the end of everything."""
    world = await world_for(CASES[1][0])
    await world.submit("mine", "drop-database", database="plant")
    procedure = await world.engine().read("mine")
    whole = json.loads(to_bytes(procedure))
    wrong = ("", "/", "palisade/", "palisade.data/", "palisade.data", "palisade.data/a", "/catalog/")
    wrong += ("palisade/catalog/tables/", "palisade/catalog/tables/a", "palisade/catalog/permissions/users/a/")
    for prefix in wrong:
        packed = json.dumps({**whole, "state": "destroying", "destroy": [prefix]}).encode()
        with pytest.raises(DamagedRow, match="mine"):
            from_bytes(procedure.key, packed, 7)


# Locks.


def test_lock_includes_locks_below_it() -> None:
    assert least(["paths/a/b/", "paths/a/", "paths/ab/", "paths/a/"]) == ("paths/a/", "paths/ab/")
    compared = [(each.key, each.range_end) for each in are_free(["paths/a/b/"])]
    assert compared == [
        (b"palisade/locks/paths/a/b/", b"palisade/locks/paths/a/b0"),
        (b"palisade/locks/paths/", b""),
        (b"palisade/locks/paths/a/", b""),
    ]
