"""What each operation of Tier A writes, and nothing else: once it is prepared, and at its end (issue 4, seed 000).

Permanent removal hides the object first: from PREPARED on it does not exist for readers, and its data is complete until
PROCEED (F9).
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from palisade.catalog import keys
from palisade.catalog.operations.all import KINDS
from palisade.catalog.operations.operation_kind import Drawn, Request
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.procedures import ProcedureState
from tests.support.catalog_world import CASES, CREDENTIAL, DATA, CatalogWorld, Operation, world_for

READINGS, PUMP, METER = "tables/plant/readings", "devices/plant/line1/pump7", "devices/plant/line2/m1"
ALICE, PASSWORD_OF_ALICE, OPS = (
    "permissions/users/alice",
    "permissions/credentials/alice",
    "permissions/roles/ops",
)
DROPPED: dict[str, Any] = {"dropping": "mine"}


def column(number: int, name: str, kind: str, category: str = "field") -> dict[str, Any]:
    return {"id": number, "name": name, "type": kind, "category": category}


def series(name: str, kind: str, encoding: str = "plain") -> dict[str, Any]:
    return {"name": name, "type": kind, "encoding": encoding, "compression": "lz4"}


MACHINE, PRESSURE, NOTE = (
    column(1, "machine", "string", "tag"),
    column(2, "pressure", "int32"),
    column(3, "note", "text"),
)
FORCE, HEAT = series("pressure", "float"), series("heat", "int32", "rle")
READ_CONFIG = {"privilege": "read", "prefix": "/config/"}

Fields = dict[str, Any] | None
"""Of a row: what it has, among others; None: it is gone."""
WRITTEN: dict[str, dict[str, Fields]] = {
    "create-database": {"databases/plant": {"name": "plant", "id": "o-mine", "properties": {}}},
    "drop-database": {"databases/plant": DROPPED},
    "create-table": {
        READINGS: {"id": "o-mine", "columns": [MACHINE, PRESSURE, NOTE], "next_column": 4, "properties": {}}
    },
    "drop-table": {READINGS: DROPPED},
    "rename-table": {READINGS: None, "tables/plant/values": {"name": "values", "columns": [MACHINE, PRESSURE, NOTE]}},
    "add-column": {READINGS: {"columns": [MACHINE, PRESSURE, NOTE, column(4, "heat", "double")], "next_column": 5}},
    "rename-column": {READINGS: {"columns": [MACHINE, PRESSURE, column(3, "remark", "text")]}},
    "alter-column-type": {READINGS: {"columns": [MACHINE, column(2, "pressure", "int64"), NOTE]}},
    "drop-column": {READINGS: {"columns": [MACHINE, PRESSURE], "next_column": 4}},
    "set-table-properties": {READINGS: {"properties": {"owner": "ops"}, "columns": [MACHINE, PRESSURE, NOTE]}},
    "delete-devices": {READINGS: {"deleting": ["m1", "m2"]}},
    "create-device": {PUMP: {"id": "o-mine", "aligned": False, "series": [FORCE, HEAT]}},
    "add-series": {PUMP: {"series": [FORCE, HEAT, series("flow", "double")]}},
    "alter-series-type": {PUMP: {"series": [series("pressure", "double"), HEAT]}},
    "alter-encoding": {PUMP: {"series": [FORCE, series("heat", "int32", "gorilla")]}},
    "delete-series": {PUMP: {"series": [FORCE, HEAT], "deleting": ["heat"]}},
    "delete-device": {PUMP: DROPPED},
    "create-template": {"templates/meter": {"name": "meter", "series": [series("volts", "double")]}},
    "drop-template": {"templates/meter": None},
    "set-template": {"template-paths/plant/line2": {"template": "meter"}},
    "unset-template": {"template-paths/plant/line2": None},
    "activate-template": {METER: {"id": "o-mine", "template": "meter", "series": []}},
    "deactivate-template": {METER: {"deleting": ["volts"], "template": None}},
    "create-view": {"views/plant/v": {"source": "plant.line1.pump7.pressure"}},
    "alter-view": {"views/plant/v": {"source": "plant.line1.pump7.heat"}},
    "delete-view": {"views/plant/v": None},
    "create-resource": {"resources/function/area": {"path": "function.area", "definition": "w * h"}},
    "alter-resource": {"resources/function/area": {"definition": "h * w"}},
    "drop-resource": {"resources/function/area": None},
    "set-ttl": {"ttl/plant/readings": {"path": "plant.readings", "ttl_ms": 1000}},
    "unset-ttl": {"ttl/plant/readings": None},
    "create-user": {ALICE: {"name": "alice", "grants": [], "roles": []}, PASSWORD_OF_ALICE: CREDENTIAL},
    "set-password": {PASSWORD_OF_ALICE: CREDENTIAL},
    "drop-user": {ALICE: None, PASSWORD_OF_ALICE: None},
    "create-role": {OPS: {"name": "ops", "grants": []}},
    "drop-role": {OPS: None, ALICE: {"roles": []}},
    "grant": {ALICE: {"grants": [READ_CONFIG]}},
    "revoke": {ALICE: {"grants": []}},
    "grant-role": {ALICE: {"roles": ["ops"]}},
    "revoke-role": {ALICE: {"roles": []}},
}
"""Once it is prepared: these rows differ from before, and no others."""
ENDED: dict[str, tuple[int, dict[str, Fields]]] = {
    "drop-database": (
        54,
        dict.fromkeys(
            ("databases/plant", READINGS, PUMP, METER, "ttl/plant/readings", "template-paths/plant/line2"),
            None,
        )
        | {"views/plant/v": None},
    ),
    "drop-table": (18, {READINGS: None}),
    "delete-devices": (6, {}),
    "delete-series": (3, {PUMP: {"series": [FORCE]}}),
    "delete-device": (18, {PUMP: None}),
    "deactivate-template": (18, {METER: None}),
}
"""Of those that remove data: how many rows of it, and what differs from before at the end. The others end as they are
prepared."""


def rows_of(world: CatalogWorld) -> dict[str, Any]:
    return {key[len(keys.ROOT) :].decode(): json.loads(value) for key, value in world.below(keys.ROOT).items()}


def assert_differs(before: dict[str, Any], after: dict[str, Any], expected: dict[str, Fields]) -> None:
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    assert changed == expected.keys()
    for key, fields in expected.items():
        if fields is None:
            assert key not in after
        else:
            assert {name: after[key].get(name) for name in fields} == fields
            kept = before.get(key, {}).keys() - fields.keys()
            assert {name: after[key].get(name) for name in kept if name != "name"} == {
                name: before[key][name] for name in kept if name != "name"
            }


@pytest.mark.parametrize(("before", "operation"), CASES, ids=[kind for _, (kind, _) in CASES])
async def test_operation_writes_exactly_its_expected_rows(before: list[Operation], operation: Operation) -> None:
    world = await world_for(before)
    kind, request = operation
    if kind == "set-password":
        world.put(keys.ROOT + PASSWORD_OF_ALICE.encode(), b'{"hash":"another one"}')
    there, data = rows_of(world), world.below(DATA)
    await world.submit("mine", kind, **request)
    engine = world.engine()
    await engine._advance(await engine.read("mine"))
    assert (await engine.read("mine")).state is ProcedureState.PREPARED
    assert_differs(there, rows_of(world), WRITTEN[kind])
    assert world.below(DATA) == data, "nothing is removed before PROCEED"
    done = await engine.run("mine")
    assert done.state is ProcedureState.DONE
    removed, expected = ENDED.get(kind, (0, WRITTEN[kind]))
    assert_differs(there, rows_of(world), expected)
    assert len(data) - len(world.below(DATA)) == removed


@pytest.mark.parametrize(("before", "operation"), CASES, ids=[kind for _, (kind, _) in CASES])
async def test_planted_plan_without_changes_is_detected(
    before: list[Operation], operation: Operation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted, in each kind: it reads, checks and ends as ever, and writes nothing."""
    kind = operation[0]
    real = KINDS[kind]

    def idle(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
        plan = real.plan(request, rows, drawn)
        return replace(plan, prepare={key: rows.get(key) for key in plan.prepare})

    monkeypatch.setitem(KINDS, kind, replace(real, plan=idle))
    with pytest.raises(AssertionError):
        await test_operation_writes_exactly_its_expected_rows(before, operation)
