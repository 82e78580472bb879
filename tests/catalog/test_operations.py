"""Every operation of Tier A forward: what it changes, what it removes permanently, what stays (issue 4, seed 000)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.catalog import keys
from palisade.catalog.operations.all import KINDS
from palisade.catalog.procedures import ProcedureState
from tests.support.catalog_world import (
    ACTIVE,
    CASES,
    COLUMNS,
    DB,
    DEVICE,
    GRANT,
    GRANT_ROLE,
    ROLE,
    SET,
    TABLE,
    TEMPLATE,
    TTL,
    USER,
    VIEW,
    Operation,
    world_for,
)

READINGS = keys.at(keys.TABLES, "plant.readings")
PUMP = keys.at(keys.DEVICES, "plant.line1.pump7")


def test_every_operation_has_a_case() -> None:
    assert {kind for _, (kind, _) in CASES} == set(KINDS)


@pytest.mark.parametrize(("before", "operation"), CASES, ids=[kind for _, (kind, _) in CASES])
async def test_operation_ends_and_releases_its_locks(before: list[Operation], operation: Operation) -> None:
    world = await world_for(before)
    kind, request = operation
    done = await world.do(kind, **request)
    assert done.state is ProcedureState.DONE, done.failed
    assert world.below(keys.LOCKS) == {}
    steps = [each.step for each in done.done]
    assert steps[:2] == ["submitted", "prepared"]
    assert steps[-1] == "done"
    assert all(each.revision for each in done.done[:-2])
    assert world.waited_for[-1] == next(each.revision for each in done.done if each.step == "prepared")
    assert b"palisade.data/others/else/1" in world.catalog()


async def after(before: list[Operation], kind: str, **request: Any) -> Any:
    world = await world_for(before)
    done = await world.do(kind, **request)
    assert done.state is ProcedureState.DONE, done.failed
    return world


async def test_renamed_table_keeps_its_rows() -> None:
    world = await after([DB, TABLE], "rename-table", table="plant.readings", to="values")
    assert world.row(READINGS) is None
    renamed = world.row(keys.at(keys.TABLES, "plant.values"))
    assert renamed["name"] == "values"
    assert len(world.below(renamed["data"].encode())) == 18


async def test_column_ids_are_never_reused() -> None:
    world = await after([DB, TABLE], "drop-column", table="plant.readings", column="note")
    await world.do("add-column", table="plant.readings", column="note", type="text")
    columns = {each["name"]: each["id"] for each in world.row(READINGS)["columns"]}
    assert columns == {"machine": 1, "pressure": 2, "note": 4}
    await world.do("rename-column", table="plant.readings", column="note", to="remark")
    assert {"remark": 4}.items() <= {each["name"]: each["id"] for each in world.row(READINGS)["columns"]}.items()


async def test_dropping_a_table_removes_its_rows_and_no_others() -> None:
    world = await world_for([DB, TABLE, ("create-table", {"table": "plant.other", "columns": COLUMNS})])
    data = world.row(READINGS)["data"].encode()
    other = world.row(keys.at(keys.TABLES, "plant.other"))["data"].encode()
    assert (await world.do("drop-table", table="plant.readings")).destroyed == 18
    assert world.row(READINGS) is None
    assert world.below(data) == {}
    assert len(world.below(other)) == 18


async def test_recreated_table_has_other_data() -> None:
    """An old row of the same name must never come to light in it."""
    world = await world_for([DB, TABLE])
    data = world.row(READINGS)["data"]
    await world.do("drop-table", table="plant.readings")
    await world.do_all([TABLE])
    assert world.row(READINGS)["data"] != data


async def test_devices_of_a_table_are_deleted_and_the_others_stay() -> None:
    world = await after([DB, TABLE], "delete-devices", table="plant.readings", devices=["m1", "m2"])
    row = world.row(READINGS)
    assert "deleting" not in row
    left = {key.decode().removeprefix(row["data"]).split("/")[0] for key in world.below(row["data"].encode())}
    assert left == {"m3", "pressure", "heat", "volts"}


async def test_dropping_a_database_removes_its_content() -> None:
    world = await after(
        [DB, TABLE, DEVICE, TTL, TEMPLATE, SET, ACTIVE, VIEW, ("create-database", {"database": "plant2"})],
        "drop-database",
        database="plant",
    )
    left = [key for key in world.catalog() if not key.startswith(keys.TEMPLATES)]
    assert left == [keys.at(keys.DATABASES, "plant2"), b"palisade.data/others/else/1"]


async def test_many_rows_are_removed_in_batches() -> None:
    world = await world_for([DB, TABLE])
    data = world.row(READINGS)["data"]
    for number in range(600):
        world.put(f"{data}m9/{number:05}".encode())
    done = await world.do("drop-table", table="plant.readings")
    assert done.destroyed == 618
    assert [each.step for each in done.done] == ["submitted", "prepared", "released", "destroyed", "done"]


async def test_series_are_deleted_with_their_values() -> None:
    world = await after([DB, DEVICE], "delete-series", device="plant.line1.pump7", series=["heat"])
    row = world.row(PUMP)
    assert [each["name"] for each in row["series"]] == ["pressure"]
    assert world.below(f"{row['data']}heat/".encode()) == {}
    assert len(world.below(f"{row['data']}pressure/".encode())) == 3
    await world.do("delete-series", device="plant.line1.pump7", series=["pressure"])
    assert world.row(PUMP) is None


async def test_encoding_and_compression_are_altered_alone_or_together() -> None:
    world = await after([DB, DEVICE], "alter-encoding", device="plant.line1.pump7", series="heat", compression="zstd")
    heat = world.row(PUMP)["series"][1]
    assert heat == {"name": "heat", "type": "int32", "encoding": "rle", "compression": "zstd"}
    refused = await world.do("alter-encoding", device="plant.line1.pump7", series="heat", encoding="dictionary")
    assert refused.state is ProcedureState.FAILED
    assert refused.failed is not None
    assert "dictionary does not fit int32" in refused.failed.text


async def test_deactivated_template_removes_its_series_and_keeps_the_devices_own() -> None:
    own = [{"name": "pressure", "type": "float"}]
    world = await world_for([DB, TEMPLATE, SET, ("create-device", {"device": "plant.line2.m1", "series": own}), ACTIVE])
    key = keys.at(keys.DEVICES, "plant.line2.m1")
    data = world.row(key)["data"]
    assert world.row(key)["template"] == "meter"
    await world.do("deactivate-template", path="plant")
    assert world.row(key)["series"] == [
        {"name": "pressure", "type": "float", "encoding": "plain", "compression": "lz4"}
    ]
    assert "template" not in world.row(key)
    assert world.below(f"{data}volts/".encode()) == {}
    assert len(world.below(f"{data}pressure/".encode())) == 3


async def test_dropped_role_is_removed_from_its_users() -> None:
    """Else a role of that name made later would give them something."""
    world = await after([USER, ROLE, GRANT_ROLE, GRANT], "drop-role", role="ops")
    assert world.row(keys.at(keys.USERS, "alice")) == {
        "name": "alice",
        "grants": [{"privilege": "read", "prefix": "/config/"}],
        "roles": [],
    }


async def test_ended_procedure_records_no_password_hash() -> None:
    world = await after([], "create-user", user="alice", password="correct horse")
    credential = world.row(keys.at(keys.CREDENTIALS, "alice"))
    assert credential["scheme"] == "scrypt"
    for value in world.below(keys.PROCEDURES).values():
        assert credential["hash"].encode() not in value
    await world.do("drop-user", user="alice")
    assert world.below(keys.PERMISSIONS) == {}


REFUSED: list[tuple[list[Operation], Operation, str]] = [
    ([], TABLE, "there is no database plant"),
    ([DB], DB, "database plant already exists"),
    ([DB, TABLE], TABLE, "table plant.readings already exists"),
    ([DB], ("drop-table", {"table": "plant.nothing"}), "there is no table plant.nothing"),
    ([DB, TABLE], ("rename-table", {"table": "plant.readings", "to": "readings"}), "already"),
    ([DB, TABLE], ("add-column", {"table": "plant.readings", "column": "note", "type": "text"}), "has a column note"),
    (
        [DB, TABLE],
        ("alter-column-type", {"table": "plant.readings", "column": "note", "type": "int32"}),
        "text cannot become int32",
    ),
    ([DB, TABLE], ("drop-column", {"table": "plant.readings", "column": "machine"}), "is a tag"),
    ([DB, TABLE], ("drop-column", {"table": "plant.readings", "column": "nothing"}), "has no column nothing"),
    ([DB, DEVICE], DEVICE, "device plant.line1.pump7 already exists"),
    ([DB, DEVICE], ("delete-series", {"device": "plant.line1.pump7", "series": ["flow"]}), "no time series flow"),
    ([DB, TEMPLATE, SET], ("drop-template", {"template": "meter"}), "is set at plant.line2"),
    ([DB, TEMPLATE, SET], ("set-template", {"template": "meter", "path": "plant.line2.x"}), "is set at plant.line2"),
    ([DB, TEMPLATE, SET], ("set-template", {"template": "meter", "path": "plant"}), "set below, at plant.line2"),
    (
        [DB, TEMPLATE, SET, ACTIVE],
        ("unset-template", {"template": "meter", "path": "plant.line2"}),
        "is active at plant.line2.m1",
    ),
    ([DB, TEMPLATE, SET, ACTIVE], ACTIVE, "is already active at plant.line2.m1"),
    ([DB], ACTIVE, "no template is set"),
    ([DB], VIEW, "there is no device plant.line1.pump7"),
    ([DB], ("unset-ttl", {"path": "plant"}), "no TTL rule"),
    ([], GRANT, "there is no user alice"),
    ([USER, GRANT], GRANT, "already has read on '/config/'"),
    ([USER], ("revoke", {"subject": "user:alice", "privilege": "read", "prefix": "/x"}), "has no read on '/x'"),
    ([USER], GRANT_ROLE, "there is no role ops"),
]  # fmt: skip


@pytest.mark.parametrize(("before", "operation", "text"), REFUSED, ids=[f"{row[1][0]}: {row[2]}" for row in REFUSED])
async def test_invalid_operation_fails_without_changes(
    before: list[Operation], operation: Operation, text: str
) -> None:
    world = await world_for(before)
    there = world.catalog()
    kind, request = operation
    done = await world.do(kind, **request)
    assert done.state is ProcedureState.FAILED
    assert done.failed is not None
    assert text in done.failed.text
    assert world.catalog() == there
