"""A client of the catalog: databases, tables, columns, roles and grants, of few names, so that operations meet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from catalog.errors import CatalogError
from tests.sim.clients import Client
from tests.sim.seen import Call, Path

COLUMNS = [{"name": "machine", "type": "string", "category": "tag"}, {"name": "heat", "type": "double"}]
WAIT_S = 4.0


class Cataloguer:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._number = 0

    async def run(self) -> None:
        while self._going():
            await asyncio.sleep(2.0 * self._world.chance.random())
            kind, given = self._operation()
            self._number += 1
            await self._do(kind, given, f"p{self._number}")

    def _operation(self) -> tuple[str, dict[str, Any]]:
        chance = self._world.chance
        database = chance.choice(("d1", "d2"))
        table = f"{database}.t"
        role = chance.choice(("r1", "r2"))
        operations: list[tuple[str, dict[str, Any]]] = [
            ("create-database", {"database": database}),
            ("create-database", {"database": database}),
            ("drop-database", {"database": database}),
            ("create-table", {"table": table, "columns": COLUMNS}),
            ("create-table", {"table": table, "columns": COLUMNS}),
            ("add-column", {"table": table, "column": chance.choice("ab"), "type": "double"}),
            ("drop-column", {"table": table, "column": chance.choice("ab")}),
            ("drop-table", {"table": table}),
            ("set-ttl", {"path": table, "ttl_ms": 1000}),
            ("create-role", {"role": role}),
            ("drop-role", {"role": role}),
            ("grant", {"subject": f"role:{role}", "privilege": "read", "prefix": "/config/"}),
            ("revoke", {"subject": f"role:{role}", "privilege": "read", "prefix": "/config/"}),
        ]
        return chance.choice(operations)

    async def _do(self, kind: str, given: dict[str, Any], id_: str) -> None:
        """Asked again at another member where nothing was heard: with its id it is not begun a second time."""
        request = Call(kind, tuple(f"{name}={value}" for name, value in given.items()))
        for attempt in range(1, 4):
            host = self._world.chance.choice(self._world.members)
            heard = await self._client.call(
                host, Path.MEMBER, request, lambda node: self._at(node, kind, given, id_), attempt
            )
            if heard:
                return
            await asyncio.sleep(0.5 * self._world.chance.random())

    async def _at(self, node: Any, kind: str, given: dict[str, Any], id_: str) -> str:
        try:
            outcome = await node.catalog.do(kind, given, id_, WAIT_S)
        except CatalogError as error:
            return error.code
        return "settled" if outcome.settled else outcome.procedure.state.value
