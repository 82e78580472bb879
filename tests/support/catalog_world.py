"""The world of a catalog in memory: a real MetaStore, PROCEED under the test's control, crashes at any call.

Every write is checked for violations of F8 and F9: data that are deleted before PROCEED for the change that hid them, a
permission that is reverted once it is written, a record that leaves the table of allowed steps, a lost lock.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from typing import Any

from palisade.catalog import keys
from palisade.catalog.engine import ProcedureEngine
from palisade.catalog.errors import DamagedRow
from palisade.catalog.operations.all import KINDS, kind_named
from palisade.catalog.passwords import sealed
from palisade.catalog.ports import ReleaseRefused
from palisade.catalog.procedure_record import from_bytes
from palisade.catalog.procedures import NEXT, Procedure, ProcedureState
from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.limits import Limits
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.requests import Command, DeleteRange, Put, Range, Txn, prefix_end
from palisade.metastore.results import KeyValue, RangeResult, TxnResult
from palisade.metastore.state_machine import MetaStore
from tests.support.meta_driver import copy_of

SALT = bytes(range(16))
DATA = keys.DATA.encode()
CREDENTIAL = sealed("correct horse", SALT)
"""Computed once: scrypt is slow on purpose."""


class Crash(Exception):
    """The node that ran the engine has died: its effects persist, its pending waits never return."""


class Violated(AssertionError):
    """A property that must always hold was violated."""


class CatalogWorld:
    """`calls` counts the engine's calls. `crash_at`: the number of the call during which it dies, `crash_after`: after
    its effect. `holding`: `released` waits; `refusing`: it raises."""

    def __init__(self, seed: int | None = None, limits: Limits | None = None, tables: MemoryMap | None = None) -> None:
        self._tables, self._limits = tables or MemoryMap(), limits
        self.store = MetaStore(self._tables, limits)
        self.store.lead(0.0, 0)
        self.calls = 0
        self.crash_at = 0
        self.crash_after = False
        self.holding = False
        self.refusing = False
        self.proceeded = 0
        self.waited_for: list[int] = []
        self._decoded: dict[bytes, tuple[int, Procedure | None]] = {}
        """By key: (revision of the row, what it says; None: damaged), as of `_procedures_at`."""
        self._data: dict[bytes, bytes] = {}
        self._procedures_at = self._data_at = 0
        """Revisions of the store."""
        self._index = 0
        self._let_go = asyncio.Event()
        self._random = random.Random(seed) if seed is not None else None

    def copied(self, seed: int | None = None) -> CatalogWorld:
        """Another world with what is stored in this one; far cheaper than the operations that made it."""
        other = CatalogWorld(seed, self._limits, copy_of(self._tables))
        other._index, other.proceeded = self._index, self.proceeded
        other.calls, other.waited_for = self.calls, list(self.waited_for)
        return other

    # The port.

    async def range(self, request: Range) -> RangeResult:
        await self._call()
        found = self.store.range(request)
        self._crash_now()
        return found

    async def txn(self, request: Txn) -> TxnResult:
        await self._call()
        result: TxnResult = self.apply(request)
        self._crash_now()
        return result

    async def released(self, revision: int) -> None:
        await self._call()
        self.waited_for.append(revision)
        if self.refusing:
            raise ReleaseRefused("n9 can't fence itself and does not answer")
        for _ in range(self.chance(150)):
            await asyncio.sleep(0)
        while self.holding:
            self._let_go.clear()
            await self._let_go.wait()
        self.proceeded = max(self.proceeded, revision)
        self._crash_now()

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self._index

    async def _call(self) -> None:
        self.calls += 1
        if self._random is not None:
            for _ in range(self.chance(4)):
                await asyncio.sleep(0)
        if self.calls == self.crash_at and not self.crash_after:
            raise Crash

    def chance(self, below: int) -> int:
        """Drawn from the seed; 0 without one."""
        return self._random.randrange(below) if self._random is not None else 0

    def _crash_now(self) -> None:
        if self.calls == self.crash_at and self.crash_after:
            raise Crash

    def let_go(self) -> None:
        self.holding = False
        self._let_go.set()

    # The store.

    def apply(self, command: Command) -> Any:
        before = self.procedures()
        data = self.data()
        self._index += 1
        stamp = self.store.stamp(float(self._index), self.now_ms())
        (wire,) = self.store.apply(self._index, 1, stamp, [encode_command(command)])
        result = decode_result(wire)
        if isinstance(command, Put):
            self._note_put(command)
        else:
            self._check_data(before, data)
        self._check_steps(before)
        return result

    def put(self, key: bytes, value: bytes = b"row") -> None:
        self.apply(Put(key, value))

    def delete(self, key: bytes) -> None:
        self.apply(DeleteRange(key))

    def rows(self, prefix: bytes) -> tuple[KeyValue, ...]:
        return self.store.range(Range(prefix, prefix_end(prefix))).kvs

    def data(self) -> dict[bytes, bytes]:
        """All rows of data."""
        if self._data_at != self.store.revision:
            self._data, self._data_at = self.below(DATA), self.store.revision
        return self._data

    def below(self, prefix: bytes) -> dict[bytes, bytes]:
        return {row.key: row.value for row in self.rows(prefix)}

    def row(self, key: bytes) -> Any:
        """As JSON; None if it does not exist."""
        found = self.store.get(key)
        return None if found is None else json.loads(found.value)

    def procedures(self) -> dict[str, Procedure]:
        """The procedures that can be parsed. A row is parsed once per revision: every write checks all of them."""
        if self._procedures_at != self.store.revision:
            decoded = {row.key: self._decode(row) for row in self.rows(keys.PROCEDURES)}
            self._procedures_at, self._decoded = self.store.revision, decoded
        return {found.id: found for _, found in self._decoded.values() if found is not None}

    def _decode(self, row: KeyValue) -> tuple[int, Procedure | None]:
        known = self._decoded.get(row.key)
        if known is not None and known[0] == row.mod_revision:
            return known
        try:
            return row.mod_revision, from_bytes(row.key, row.value, row.mod_revision)
        except DamagedRow:
            return row.mod_revision, None

    def catalog(self) -> dict[bytes, bytes]:
        """All rows but the procedures, and all data."""
        return self.below(keys.ROOT) | self.below(DATA) | self.below(keys.LOCKS)

    # Properties.

    def _note_put(self, command: Put) -> None:
        """A put removes nothing, so the rows of data need not be read again."""
        if command.key.startswith(DATA):
            self._data[command.key] = command.value
        self._data_at = self.store.revision

    def _check_data(self, before: dict[str, Procedure], data: dict[bytes, bytes]) -> None:
        for key in data.keys() - self.data().keys():
            text = key.decode()
            hidden = [p for p in before.values() if any(text.startswith(prefix) for prefix in p.destroy)]
            if not any(p.state is ProcedureState.DESTROYING and prepared_at(p) <= self.proceeded for p in hidden):
                raise Violated(f"{text} was removed, and nothing that hid it is released up to {self.proceeded}")

    def _check_steps(self, before: dict[str, Procedure]) -> None:
        after = self.procedures()
        for id_, procedure in after.items():
            was = before.get(id_)
            if was is None or was.revision == procedure.revision:
                continue
            if procedure.state not in NEXT[was.state]:
                raise Violated(f"{id_} went from {was.state} to {procedure.state}")
            if (
                procedure.operation.keeps
                and was.state is ProcedureState.PREPARED
                and procedure.state is not ProcedureState.DONE
            ):
                raise Violated(f"{id_} changed permissions and ended as {procedure.state}")
            goes_on = was.state is ProcedureState.PREPARED and procedure.state in (
                ProcedureState.DONE,
                ProcedureState.DESTROYING,
            )
            if goes_on and was.revision > self.proceeded:
                raise Violated(f"{id_} went on from {was.revision}, released is {self.proceeded}")
        open_ids = {id_.encode() for id_, procedure in after.items() if not procedure.ended}
        locked = set(self.below(keys.LOCKS).values())
        if not open_ids <= locked:
            raise Violated(f"procedures without a lock: {open_ids - locked}")
        if not {value.decode() for value in locked} & after.keys() <= {id_.decode() for id_ in open_ids}:
            raise Violated("a procedure that has ended holds a lock")

    # For tests.

    def engine(self, node: str = "n1") -> ProcedureEngine:
        return ProcedureEngine(self, node)

    async def submit(self, id_: str, kind: str, **request: Any) -> Procedure:
        """As the API does: checked, sealed, with a random id for created objects."""
        found = kind_named(kind).checked(request)
        if KINDS[kind].secret:
            found[KINDS[kind].secret] = CREDENTIAL
        return await self.engine().submit(id_, KINDS[kind], found, f"o-{id_}")

    async def do(self, kind: str, id_: str = "", **request: Any) -> Procedure:
        """Begin it and run it to its end."""
        id_ = id_ or f"p{self.calls}"
        await self.submit(id_, kind, **request)
        return await self.engine().run(id_)

    async def do_all(self, operations: Iterable[tuple[str, dict[str, Any]]]) -> None:
        for kind, request in operations:
            done = await self.do(kind, **request)
            assert done.state is ProcedureState.DONE, (kind, done.failed)


def prepared_at(procedure: Procedure) -> int:
    """The revision of its change, from its history."""
    return next(each.revision for each in procedure.done if each.step == "prepared")


DB: tuple[str, dict[str, Any]] = ("create-database", {"database": "plant"})
COLUMNS = [
    {"name": "machine", "type": "string", "category": "tag"},
    {"name": "pressure", "type": "int32"},
    {"name": "note", "type": "text"},
]
TABLE: tuple[str, dict[str, Any]] = ("create-table", {"table": "plant.readings", "columns": COLUMNS})
SERIES = [{"name": "pressure", "type": "float"}, {"name": "heat", "type": "int32", "encoding": "rle"}]
DEVICE: tuple[str, dict[str, Any]] = ("create-device", {"device": "plant.line1.pump7", "series": SERIES})
TEMPLATE: tuple[str, dict[str, Any]] = (
    "create-template",
    {"template": "meter", "series": [{"name": "volts", "type": "double"}]},
)
SET: tuple[str, dict[str, Any]] = ("set-template", {"template": "meter", "path": "plant.line2"})
ACTIVE: tuple[str, dict[str, Any]] = ("activate-template", {"device": "plant.line2.m1"})
RESOURCE: tuple[str, dict[str, Any]] = ("create-resource", {"resource": "function.area", "definition": "w * h"})
VIEW: tuple[str, dict[str, Any]] = ("create-view", {"view": "plant.v", "source": "plant.line1.pump7.pressure"})
TTL: tuple[str, dict[str, Any]] = ("set-ttl", {"path": "plant.readings", "ttl_ms": 1000})
USER: tuple[str, dict[str, Any]] = ("create-user", {"user": "alice", "password": "correct horse"})
ROLE: tuple[str, dict[str, Any]] = ("create-role", {"role": "ops"})
GRANT: tuple[str, dict[str, Any]] = ("grant", {"subject": "user:alice", "privilege": "read", "prefix": "/config/"})
GRANT_ROLE: tuple[str, dict[str, Any]] = ("grant-role", {"role": "ops", "user": "alice"})

Operation = tuple[str, dict[str, Any]]
CASES: list[tuple[list[Operation], Operation]] = [
    ([], DB),
    ([DB, TABLE, DEVICE, TTL, TEMPLATE, SET, ACTIVE, VIEW], ("drop-database", {"database": "plant"})),
    ([DB], TABLE),
    ([DB, TABLE], ("drop-table", {"table": "plant.readings"})),
    ([DB, TABLE], ("rename-table", {"table": "plant.readings", "to": "values"})),
    ([DB, TABLE], ("add-column", {"table": "plant.readings", "column": "heat", "type": "double"})),
    ([DB, TABLE], ("rename-column", {"table": "plant.readings", "column": "note", "to": "remark"})),
    ([DB, TABLE], ("alter-column-type", {"table": "plant.readings", "column": "pressure", "type": "int64"})),
    ([DB, TABLE], ("drop-column", {"table": "plant.readings", "column": "note"})),
    ([DB, TABLE], ("set-table-properties", {"table": "plant.readings", "properties": {"owner": "ops"}})),
    ([DB, TABLE], ("delete-devices", {"table": "plant.readings", "devices": ["m1", "m2"]})),
    ([DB], DEVICE),
    ([DB, DEVICE], ("add-series", {"device": "plant.line1.pump7", "series": [{"name": "flow", "type": "double"}]})),
    ([DB, DEVICE], ("alter-series-type", {"device": "plant.line1.pump7", "series": "pressure", "type": "double"})),
    ([DB, DEVICE], ("alter-encoding", {"device": "plant.line1.pump7", "series": "heat", "encoding": "gorilla"})),
    ([DB, DEVICE], ("delete-series", {"device": "plant.line1.pump7", "series": ["heat"]})),
    ([DB, DEVICE], ("delete-device", {"device": "plant.line1.pump7"})),
    ([], TEMPLATE),
    ([TEMPLATE], ("drop-template", {"template": "meter"})),
    ([DB, TEMPLATE], SET),
    ([DB, TEMPLATE, SET], ("unset-template", {"template": "meter", "path": "plant.line2"})),
    ([DB, TEMPLATE, SET], ACTIVE),
    ([DB, TEMPLATE, SET, ACTIVE], ("deactivate-template", {"path": "plant.line2"})),
    ([DB, DEVICE], VIEW),
    ([DB, DEVICE, VIEW], ("alter-view", {"view": "plant.v", "source": "plant.line1.pump7.heat"})),
    ([DB, DEVICE, VIEW], ("delete-view", {"view": "plant.v"})),
    ([], RESOURCE),
    ([RESOURCE], ("alter-resource", {"resource": "function.area", "definition": "h * w"})),
    ([RESOURCE], ("drop-resource", {"resource": "function.area"})),
    ([DB], TTL),
    ([DB, TTL], ("unset-ttl", {"path": "plant.readings"})),
    ([], USER),
    ([USER], ("set-password", {"user": "alice", "password": "battery staple"})),
    ([USER], ("drop-user", {"user": "alice"})),
    ([], ROLE),
    ([USER, ROLE, GRANT_ROLE], ("drop-role", {"role": "ops"})),
    ([USER], GRANT),
    ([USER, GRANT], ("revoke", {"subject": "user:alice", "privilege": "read", "prefix": "/config/"})),
    ([USER, ROLE], GRANT_ROLE),
    ([USER, ROLE, GRANT_ROLE], ("revoke-role", {"role": "ops", "user": "alice"})),
]
"""The prerequisites and the operation: one for every kind."""


async def world_for(before: list[Operation], seed: int | None = None) -> CatalogWorld:
    """With three rows of data for every object that has data."""
    world = CatalogWorld()
    await world.do_all(before)
    for place in (keys.TABLES, keys.DEVICES):
        for value in map(json.loads, world.below(place).values()):
            for name in ("m1", "m2", "m3", "pressure", "heat", "volts"):
                for number in range(3):
                    world.put(f"{value['data']}{name}/{number}".encode())
    world.put(b"palisade.data/others/else/1")
    if seed is not None:
        world._random = random.Random(seed)
    return world
