"""A client of an administrator: pins of MM, regions, and requests that are refused or executed once.

It draws from a source of its own, and only the scenarios with `rare` have it. Its requests are not in the history: keys
below `palisade/` and pins are in no model of it, and the regions that it creates have no keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from palisade.catalog.errors import CatalogError
from palisade.metastore.errors import MetastoreError
from palisade.metastore.requests import Command, Compact, DeleteRange, Pin, Put, Txn, Unpin
from palisade.service.callers import UNRESTRICTED
from palisade.service.regions import RegionAdmin
from palisade.vault.regions import Mode, Policy, Region
from palisade.wire.fencing_errors import ReservedKey
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED

RESERVED, REGIONS = "reserved keys", "regions"
"""The names of what it checks itself."""
OWN = b"palisade/catalog/databases/mine"
PINS, PIN_MS = 2, (1_000, 12_000)
LATE_S = 0.3
PAST = 10
"""How many revisions before the latest one a pin holds at most."""


class Administrator:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._chance = Random(f"administrator {self._world.seed} {self._world.epoch}")
        self._number = 0

    async def run(self) -> None:
        acts = (
            self._pin, self._pin, self._pin, self._unpin, self._compact, self._write_own, self._put_region,
            self._at_all,
        )  # fmt: skip
        while self._going():
            await asyncio.sleep(self._chance.random())
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._chance.choice(acts)(self._chance.choice(self._world.members))
            except (*EXPECTED, CatalogError, ConnectionError, TimeoutError):
                continue

    async def _ask(self, host: Host, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return await self._world.ask(self._client.process, self._client.name, host.http, work)

    async def _write(self, host: Host, request: Command) -> Any:
        return await self._ask(host, lambda node: node.key_values.write(request, caller=UNRESTRICTED))

    def _pin_id(self) -> str:
        return f"admin{self._chance.randrange(PINS)}"

    async def _pin(self, host: Host) -> None:
        """Held while members are away: their next snapshot has other pins than their own state."""
        revision = max(1, self._world.revision - self._chance.randrange(PAST))
        await self._write(host, Pin(self._pin_id(), revision, self._chance.randint(*PIN_MS)))

    async def _unpin(self, host: Host) -> None:
        await self._write(host, Unpin(self._pin_id()))

    async def _compact(self, host: Host) -> None:
        """As far as the pins permit."""
        await self._write(host, Compact(self._world.revision))

    async def _write_own(self, host: Host) -> None:
        """A user must not write below `palisade/`, alone or in any branch of a transaction."""
        put = Put(OWN, b"{}")
        requests: tuple[Command, ...] = (
            put, DeleteRange(OWN), Txn(success=(put,)), Txn(failure=(Txn(success=(DeleteRange(OWN),)),)),
        )  # fmt: skip
        request = self._chance.choice(requests)
        try:
            result = await self._write(host, request)
        except ReservedKey:
            return
        self._world.fail(RESERVED, f"{host.id} executes {request} of a user: {result}")

    async def _put_region(self, host: Host) -> None:
        """By the code of the API. Once it is acknowledged, it and all earlier changes are released."""
        region = Region("a", b"a/", Mode.STRICT, self._chance.choice((Policy.FAIL_CLOSED, Policy.DENY)))

        async def put(node: Any) -> None:
            before = self._world.revision
            revision = await RegionAdmin(node.key_values).put(region)
            released = node.fencing.log.released or 0
            if released < max(before, revision):
                self._world.fail(REGIONS, f"{host.id} acknowledges a region of {revision}, RR is {released}")

        try:
            await self._ask(host, put)
        except MetastoreError as error:
            self._world.fail(REGIONS, f"{host.id} refuses a region: {type(error).__name__}: {error}")

    async def _at_all(self, _: Host) -> None:
        """One operation with one id at every member, as a client sends it that got no answer in time: it is executed
        once, also if it ends while another member reads that it has not begun."""
        self._number += 1
        database, id_ = f"admin{self._number % 2}", f"admin{self._world.epoch}-{self._number}"
        kind = self._chance.choice(("create-database", "drop-database"))

        async def do(node: Any) -> None:
            await node.catalog.do(kind, {"database": database}, id_, 1.0)

        async def late(host: Host, after_s: float) -> None:
            await asyncio.sleep(after_s)
            await self._ask(host, do)

        sent = [late(host, LATE_S * self._chance.random()) for host in self._world.members]
        await asyncio.gather(*sent, return_exceptions=True)
