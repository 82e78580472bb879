"""Many clients, several nodes that die and come back, releases that are late or refused, cancellations: what is left is
what the operations that are done would have left one after the other (F9). One seed, one schedule."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from typing import Any

import pytest

from palisade.catalog import keys
from palisade.catalog.engine import ProcedureEngine, ProcedurePending
from palisade.catalog.errors import CatalogError, RolledBack
from palisade.catalog.operations.operation_kind import Drawn
from palisade.catalog.plan import CatalogRows, NeedsRange, NeedsRow
from palisade.catalog.ports import ReleaseRefused
from palisade.catalog.procedures import Procedure, ProcedureState, prepared, rolled_back
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, Put, Range, Txn, prefix_end
from palisade.metastore.results import KeyValue, RangeResult, TxnResult
from tests.support.catalog_world import DATA, CatalogWorld, Crash, prepared_at

CLIENTS, RUNNERS, OPERATIONS = 4, 2, 15
COLUMNS = [{"name": "c1", "type": "int32"}, {"name": "c2", "type": "text"}]
BEGINNING: list[tuple[str, dict[str, Any]]] = [
    ("create-database", {"database": "a"}),
    ("create-database", {"database": "b"}),
    ("create-table", {"table": "a.t", "columns": COLUMNS}),
    ("create-device", {"device": "a.d", "series": [{"name": "s1", "type": "int32"}, {"name": "s2", "type": "int32"}]}),
    ("create-device", {"device": "b.d", "series": [{"name": "s1", "type": "int32"}]}),
    ("create-template", {"template": "m", "series": [{"name": "volts", "type": "double"}]}),
    ("set-template", {"template": "m", "path": "b"}),
    ("create-user", {"user": "alice", "password": "correct horse"}),
    ("create-role", {"role": "ops"}),
]


class Node:
    """The port of one runner: it may die at any call, and its releases may be refused."""

    def __init__(self, world: CatalogWorld, chance: random.Random) -> None:
        self._world, self._chance = world, chance

    def _maybe_die(self) -> None:
        if self._chance.random() < 0.03:
            raise Crash

    async def range(self, request: Range) -> RangeResult:
        self._maybe_die()
        return await self._world.range(request)

    async def txn(self, request: Txn) -> TxnResult:
        self._maybe_die()
        result = await self._world.txn(request)
        self._maybe_die()
        return result

    async def released(self, revision: int) -> None:
        self._maybe_die()
        if self._chance.random() < 0.15:
            raise ReleaseRefused("a node can't fence itself")
        await self._world.released(revision)

    def now_ms(self) -> int:
        return self._world.now_ms()


def an_operation(chance: random.Random) -> tuple[str, dict[str, Any]]:
    """On few names, so that they meet."""
    database, other = chance.choice("ab"), chance.choice("ab")
    table, device = f"{database}.{chance.choice('tu')}", f"{database}.{chance.choice('de')}"
    series = [{"name": chance.choice(["s1", "s2"]), "type": "int32"}]
    user, role = chance.choice(["alice", "bob"]), chance.choice(["ops", "dev"])
    return chance.choice(
        [
            ("create-database", {"database": database}),
            ("drop-database", {"database": database}),
            ("create-table", {"table": table, "columns": COLUMNS}),
            ("create-table", {"table": table, "columns": COLUMNS}),
            ("drop-table", {"table": table}),
            ("rename-table", {"table": table, "to": chance.choice("tu")}),
            ("add-column", {"table": table, "column": chance.choice(["c3", "c4"]), "type": "double"}),
            ("drop-column", {"table": table, "column": "c1"}),
            ("delete-devices", {"table": table, "devices": ["m1"]}),
            ("create-device", {"device": device, "series": series}),
            ("create-device", {"device": device, "series": series}),
            ("delete-series", {"device": device, "series": ["s1"]}),
            ("delete-device", {"device": device}),
            ("create-view", {"view": f"{other}.v", "source": f"{device}.s1"}),
            ("alter-view", {"view": f"{other}.v", "source": f"{device}.s2"}),
            ("set-ttl", {"path": chance.choice([database, table]), "ttl_ms": chance.randrange(1, 9)}),
            ("create-template", {"template": "m", "series": [{"name": "volts", "type": "double"}]}),
            ("drop-template", {"template": "m"}),
            ("set-template", {"template": "m", "path": chance.choice([database, device])}),
            ("unset-template", {"template": "m", "path": chance.choice([database, device])}),
            ("activate-template", {"device": device}),
            ("deactivate-template", {"path": database}),
            ("create-user", {"user": user, "password": "correct horse"}),
            ("drop-user", {"user": user}),
            ("create-role", {"role": role}),
            ("drop-role", {"role": role}),
            ("grant-role", {"role": role, "user": user}),
            ("grant", {"subject": f"user:{user}", "privilege": "read", "prefix": "/x"}),
        ]
    )


async def client(world: CatalogWorld, chance: random.Random, name: int) -> None:
    for number in range(OPERATIONS):
        kind, request = an_operation(chance)
        with contextlib.suppress(CatalogError):
            await world.submit(f"p{name}-{number}", kind, **request)
        await turns(chance, 60)
        if chance.random() < 0.2:
            with contextlib.suppress(CatalogError):
                await world.engine("canceller").cancel(f"p{name}-{chance.randrange(number + 1)}")
        await write_data(world, chance)


async def write_data(world: CatalogWorld, chance: random.Random) -> None:
    """As a careful program does: only while the row that it has seen is there, unmarked, and its database as well."""
    rows = [*world.rows(keys.TABLES), *world.rows(keys.DEVICES)]
    if not rows:
        return
    row = chance.choice(rows)
    value = json.loads(row.value)
    database = world.store.get(keys.at(keys.DATABASES, keys.path_of(b"", row.key.split(b"/")[3])))
    if database is None or "dropping" in str(database.value) or "dropping" in value or "deleting" in value:
        return
    seen = [Compare(each.key, CompareTarget.MOD, CompareResult.EQUAL, each.mod_revision) for each in (row, database)]
    place = f"{value['data']}{chance.choice(['m1', 's1', 's2', 'volts'])}/{chance.randrange(5)}"
    await turns(chance, 5)
    world.apply(Txn(tuple(seen), (Put(place.encode()),)))


async def runner(world: CatalogWorld, chance: random.Random, ready: asyncio.Event) -> None:
    """Takes up whatever is open, dies, and begins again."""
    while True:
        with contextlib.suppress(Crash, ProcedurePending):
            engine = type(world.engine())(Node(world, chance), f"n{chance.randrange(9)}")
            open_ids = await engine.open_ids()
            if not open_ids and ready.is_set():
                return
            for id_ in chance.sample(open_ids, len(open_ids)):
                await engine.run(id_)
        await turns(chance, 4)


async def turns(chance: random.Random, most: int) -> None:
    for _ in range(chance.randrange(most)):
        await asyncio.sleep(0)


async def played(seed: int) -> CatalogWorld:
    chance = random.Random(seed)
    world = CatalogWorld(seed)
    for number, (kind, request) in enumerate(BEGINNING):
        await world.do(kind, f"b{number}", **request)
    ready = asyncio.Event()
    runners = [asyncio.create_task(runner(world, chance, ready)) for _ in range(RUNNERS)]
    await asyncio.gather(*(client(world, chance, name) for name in range(CLIENTS)))
    ready.set()
    await asyncio.gather(*runners)
    return world


# What has to be left.


def one_after_the_other(procedures: list[Procedure]) -> dict[bytes, bytes]:
    """The rows of the catalog, by the plans of those that are done, in the order in which they were written."""
    rows: dict[bytes, bytes] = {}
    for each in procedures:
        request = {**each.request, **({"password": {}} if each.operation.secret else {})}
        plan = planned(each, request, rows)
        for changes in (plan.prepare, dict.fromkeys(covered(rows, plan.destroy)), plan.finish):
            for key, value in changes.items():
                rows.pop(key, None)
                if value is not None:
                    rows[key] = value
    return {key: value for key, value in rows.items() if not key.startswith(keys.CREDENTIALS)}


def planned(procedure: Procedure, request: dict[str, Any], rows: dict[bytes, bytes]) -> Any:
    known = CatalogRows()
    while True:
        try:
            return procedure.operation.plan(request, known, Drawn(procedure.id, procedure.object_id))
        except NeedsRow as need:
            known.found[need.key] = a_row(need.key, rows[need.key]) if need.key in rows else None
        except NeedsRange as need:
            found = sorted(key for key in rows if need.prefix <= key < prefix_end(need.prefix))
            known.ranges[need.prefix] = tuple(a_row(key, rows[key]) for key in found)


def a_row(key: bytes, value: bytes) -> KeyValue:
    return KeyValue(key, value, 1, 1, 1, 0)


def covered(rows: dict[bytes, bytes], prefixes: tuple[str, ...]) -> list[bytes]:
    return [key for key in rows if any(key.startswith(prefix.encode()) for prefix in prefixes)]


def check(world: CatalogWorld) -> int:
    """How many operations were done."""
    procedures = world.procedures().values()
    assert all(each.ended for each in procedures)
    assert world.below(keys.LOCKS) == {}
    done = sorted((each for each in procedures if each.state is ProcedureState.DONE), key=prepared_at)
    left = {key: value for key, value in world.below(keys.ROOT).items() if not key.startswith(keys.CREDENTIALS)}
    assert left == one_after_the_other(done)
    objects = [json.loads(value) for place in (keys.TABLES, keys.DEVICES) for value in world.below(place).values()]
    for each in objects:
        assert not {"dropping", "deleting"} & each.keys()
    homes = tuple(each["data"].encode() for each in objects)
    for key in world.below(DATA):
        assert key.startswith(homes), f"{key!r} belongs to nothing"
    return len(done)


@pytest.mark.parametrize("seed", range(40))
async def test_random_schedule_ends_like_a_serial_execution(seed: int) -> None:
    assert check(await played(seed)) > len(BEGINNING)


# The check sees what it is for: each fault, planted in the production code.


async def all_hold(seeds: range) -> None:
    for seed in seeds:
        check(await played(seed))


async def test_a_creation_that_is_taken_back_although_it_has_data(monkeypatch: pytest.MonkeyPatch) -> None:
    async def careless(self: ProcedureEngine, procedure: Procedure, why: RolledBack) -> bool:
        return await self._end(procedure, rolled_back(procedure, why, self._actor()), procedure.undo)

    monkeypatch.setattr(ProcedureEngine, "_roll_back", careless)
    with pytest.raises(AssertionError, match="belongs to nothing"):
        await all_hold(range(8, 20))


async def test_locks_that_do_not_exclude(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.catalog.locks.are_free", lambda _: ())
    with pytest.raises((AssertionError, CatalogError)):
        await all_hold(range(40))


async def test_a_rollback_that_puts_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.catalog.engine.prepared", lambda p, plan, before, actor: prepared(p, plan, {}, actor))
    with pytest.raises((AssertionError, CatalogError)):
        await all_hold(range(40))
