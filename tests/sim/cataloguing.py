"""A client of the catalog: every kind of operation with its prerequisites, and invalid ones.

Half of its operations use few names, so that they conflict; the other half executes one operation with all
prerequisites (the cases of the catalog's own tests, one for every kind), so that most of them succeed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.catalog.errors import CatalogError
from palisade.metastore.requests import Put
from palisade.service.callers import THIS_NODE
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED
from tests.sim.seen import CANCEL, LOOK, Answer, Call, Path
from tests.support.catalog_world import CASES, Operation

COLUMNS = [{"name": "machine", "type": "string", "category": "tag"}, {"name": "heat", "type": "double"}]
WAIT_S = 4.0
NUMBERS = 1_000_000
"""In one history. An id that was used before a restore belongs to the earlier request."""
LOOKS = 3
"""Half the time one that is just being released, which takes milliseconds."""
AT_THE_LEADER = 0.7
"""How often it is queried: only this response names the nodes that a procedure waits for."""


class Cataloguer:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._number = NUMBERS * client.world.epoch

    async def run(self) -> None:
        while self._going():
            before, (kind, given) = self._world.chance.choice(CASES)
            steps = [*before, (kind, given)] if self._world.chance.random() < 0.5 else [self._operation()]
            for step in steps:
                if not self._going():
                    return
                await self._one(*step)
                await asyncio.sleep(0.2 * self._world.chance.random())
            await asyncio.sleep(2.0 * self._world.chance.random())

    async def _one(self, kind: str, given: dict[str, Any]) -> None:
        self._number += 1
        lot = self._world.chance.random()
        if lot < 0.1:
            await self._fill()
        if lot < 0.85:
            await self._do(kind, given, f"p{self._number}", WAIT_S)
        else:
            await self._begin_and_cancel(kind, given, f"p{self._number}")

    def _operation(self) -> Operation:
        chance = self._world.chance
        database = chance.choice(("d1", "d2"))
        table = f"{database}.t"
        role = chance.choice(("r1", "r2"))
        resource = chance.choice(("function.area", "quota.r1"))
        operations: list[Operation] = [
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
            ("create-resource", {"resource": resource, "definition": "w * h"}),
            ("alter-resource", {"resource": resource, "definition": "h * w"}),
            ("drop-resource", {"resource": resource}),
        ]
        return chance.choice(operations)

    async def _do(self, kind: str, given: dict[str, Any], id_: str, wait_s: float) -> None:
        """Repeated at another member without a response: the same id never begins it twice."""
        request = Call(kind, (id_, *(f"{name}={value}" for name, value in given.items())))

        async def do(node: Any) -> Answer:
            outcome = await node.catalog.do(kind, given, id_, wait_s)
            return Answer(outcome.procedure.state.value, outcome.procedure.revision, outcome.settled)

        for attempt in range(1, 4):
            if await self._call(self._world.chance.choice(self._world.members), request, do, attempt):
                return
            await asyncio.sleep(0.5 * self._world.chance.random())

    async def _begin_and_cancel(self, kind: str, given: dict[str, Any], id_: str) -> None:
        """Perhaps before it is released, perhaps long after its end."""
        await self._do(kind, given, id_, 0.0)
        for _ in range(LOOKS):
            leader = self._world.leader() if self._world.chance.random() < AT_THE_LEADER else None
            host = leader or self._world.chance.choice(self._world.members)
            await asyncio.sleep(0.01 * self._world.chance.random())
            await self._call(host, Call(LOOK, (id_,)), lambda node: view_of(node.catalog.procedure(id_)))
        await asyncio.sleep(0.5 * self._world.chance.random() ** 3)
        host = self._world.chance.choice(self._world.members)
        await self._call(host, Call(CANCEL, (id_,)), lambda node: view_of(node.catalog.cancel(id_)))

    async def _call(
        self, host: Host, request: Call, work: Callable[[Any], Awaitable[Answer]], attempt: int = 1
    ) -> bool:
        """Whether there was a response. The response of a node is checked before it is sent."""
        world = self._world

        async def at(node: Any) -> Answer:
            since, epoch = world.revision, world.epoch
            try:
                answer = await work(node)
            except CatalogError as error:
                answer = Answer(code=error.code)
            if world.epoch == epoch:
                world.answered(host, request, since, answer)
            return answer

        return await self._client.call(host, Path.MEMBER, request, at, attempt)

    async def _fill(self) -> None:
        """Rows of data for every object that has data, so that its removal has rows to remove."""
        host = self._world.chance.choice(self._world.members)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._world.ask(self._client.process, self._client.name, host.http, self._rows)
        except (*EXPECTED, ConnectionError, TimeoutError):
            return

    async def _rows(self, node: Any) -> None:
        for name in ("tables", "devices"):
            for each in (await node.catalog.objects(name))["objects"]:
                await node.key_values.write(Put(f"{each['data']}m1/1".encode(), b"row"), caller=THIS_NODE)


async def view_of(asked: Awaitable[dict[str, Any]]) -> Answer:
    """The API's view of a procedure. Raises CatalogError."""
    view = await asked
    return Answer(view["state"], view["revision"], view["ended"] and view["released"])
