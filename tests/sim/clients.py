"""The common part of every simulated client: sends requests to nodes over the network, and records requests and
results.

A client is a process of its own, with a connection to every node; a response that is late counts as none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.metastore.requests import Range, RequestId
from palisade.metastore.results import KeyValue, RangeResult
from palisade.service.callers import UNRESTRICTED
from palisade.vault.change import Item
from palisade.vault.snapshot_reads import Rows
from tests.sim.node import Host
from tests.sim.outcomes import kind_of, outcome_from
from tests.sim.seen import Call, Ok, Operation, Outcome, Path, Refused, Request, Unknown, Why
from tests.sim.sockets import SimLoop
from tests.sim.world import World

TIMEOUT_S = 6.0
"""A little more than the deadline of a node for a request."""


class Client:
    """`name` is also its place in the network."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.chance = world.chance
        self.sequence = 0
        process = world.simulation.process(name, loop=SimLoop)
        loop: Any = process.loop
        loop.network, loop.process, loop.name = world.network, process, name
        self.process = process
        world.callers.append(name)

    async def ask(
        self,
        host: Host,
        path: Path,
        request: Request,
        work: Callable[[Any], Awaitable[Any]],
        request_id: RequestId | None = None,
        attempt: int = 1,
    ) -> Outcome:
        """Once."""
        world = self.world
        number = world.history.begin(self.name, host.id, path, request, request_id, attempt)
        outcome = await outcome_from(self._response(host, work), request)
        world.history.end(number, outcome)
        revision = getattr(outcome.result, "revision", "-") if isinstance(outcome, Ok) else "-"
        what = f"{type(request).__name__} {kind_of(outcome)} {revision}"
        world.note(self.name, f"{number} {path.value} at {host.id} {what}")
        return outcome

    async def _response(self, host: Host, work: Callable[[Any], Awaitable[Any]]) -> Any:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.world.ask(self.process, self.name, host.http, work)

    async def call(
        self, host: Host, path: Path, request: Call, work: Callable[[Any], Awaitable[Any]], attempt: int = 1
    ) -> bool:
        """A request of the catalog; returns whether there was a response."""
        outcome = await self.ask(host, path, request, work, None, attempt)
        if isinstance(outcome, Ok):
            self.world.count(f"catalog {request.name}: {outcome.result}")
        return isinstance(outcome, Ok)

    async def write(self, request: Request, tries: int = 3) -> Outcome:
        """With an id, repeated at other nodes until its outcome is known."""
        self.sequence += 1
        request_id = RequestId(f"{self.name}", self.sequence)
        outcome: Outcome = Unknown()
        for attempt in range(1, tries + 1):
            host = self.chance.choice(self.world.members)
            outcome = await self.ask(
                host,
                way_to(host),
                request,
                lambda node: node.key_values.write(request, request_id, caller=UNRESTRICTED),
                request_id,
                attempt,
            )
            if isinstance(outcome, Ok) or (isinstance(outcome, Refused) and outcome.why is Why.REJECTED):
                break
            await asyncio.sleep(0.3 * self.chance.random())
        return outcome

    async def read(self, request: Range) -> Outcome:
        host = self.chance.choice(self.world.members)
        path = Path.LOCAL if request.serializable else way_to(host)
        return await self.ask(host, path, request, lambda node: node.key_values.range(request, caller=UNRESTRICTED))

    async def fenced(self, host: Host, key: bytes) -> Outcome:
        """From the vault of a node, by its API."""

        async def get(node: Any) -> RangeResult:
            part = node.fencing if host.follows else node.fencing.part
            return result_of((await part.reads.read(key)).item)

        return await self.ask(host, Path.FENCED_API, Range(key), get)

    async def fenced_range(self, host: Host, start: bytes, end: bytes) -> Outcome:
        """As `fenced`, of all keys from `start` to `end`."""

        async def read(node: Any) -> RangeResult:
            part = node.fencing if host.follows else node.fencing.part
            return rows_result(await part.reads.range(start, end, 0))

        return await self.ask(host, Path.FENCED_API, Range(start, end), read)


def rows_result(rows: Rows) -> RangeResult:
    """Of a fenced range, which names its revision."""
    kvs = tuple(KeyValue(*item) for item in rows.items)
    return RangeResult(rows.revision, kvs, rows.more, len(kvs))


def way_to(host: Host) -> Path:
    """The path for a member, according to its role at the time of the request."""
    return Path.LEADER if host.group is not None and host.group.leads else Path.MEMBER


def result_of(item: Item | None) -> RangeResult:
    """A read whose result does not name its revision."""
    kvs = () if item is None else (KeyValue(*item),)
    return RangeResult(0, kvs, False, len(kvs))


__all__ = ["Client", "Operation", "result_of", "rows_result", "way_to"]
