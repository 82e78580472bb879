"""Clients of the stream port: `node.client` as it is, over simulated sockets, with its own retries, moves and watches.

What they ask for is recorded as one operation each, however often the client sent it: that it has one effect, and the
answer of that one, is what its request ids are for (M3). A client is not of any one node; the history says "stream".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from metastore.errors import Compacted
from metastore.requests import DeleteRange, Put, Range, Txn, WatchRequest
from node.client.client import Client as StreamClient
from raftgroup.errors import RaftError
from tests.sim.clients import Client
from tests.sim.node import STREAM
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Ending, Ok, Outcome, Path, Request
from tests.sim.world import World

AT = "stream"
TIMEOUT_S = 5.0
PROGRESS_S = 2.0
LIFE_S = 8.0
BURST = 4


class Streamer:
    """`make`: what to ask for next. Now and then it asks for several things at once."""

    def __init__(self, client: Client, make: Callable[[], Request], going: Callable[[], bool], pause_s: float) -> None:
        self._client, self._make, self._going, self._pause_s = client, make, going, pause_s
        self._world = client.world

    async def run(self) -> None:
        async with connected(self._world, self._client.name) as stream:
            while self._going():
                await asyncio.sleep(self._pause_s * self._world.chance.random())
                many = self._world.chance.randint(2, BURST) if self._world.chance.random() < 0.2 else 1
                await asyncio.gather(*(self.ask(stream, self._make()) for _ in range(many)))

    async def ask(self, stream: StreamClient, request: Request) -> Outcome:
        history, client = self._world.history, self._client
        number = history.begin(client.name, AT, Path.STREAM, request)
        try:
            outcome: Outcome = Ok(await sent(stream, request))
        except EXPECTED as error:
            outcome = outcome_of(error)
        history.end(number, outcome)
        self._world.count(f"client stream {type(request).__name__}: {type(outcome).__name__}")
        revision = getattr(outcome.result, "revision", "-") if isinstance(outcome, Ok) else "-"
        self._world.note(client.name, f"{number} {type(request).__name__} {type(outcome).__name__} {revision}")
        return outcome


def connected(world: World, name: str) -> StreamClient:
    """To any member; it goes to the leader by itself."""
    endpoints = [f"{host.address}:{STREAM}" for host in world.members]
    return StreamClient(endpoints, timeout_s=TIMEOUT_S, client_id=name)


def sent(stream: StreamClient, request: Request) -> Awaitable[Any]:
    """By the methods that a user has."""
    match request:
        case Put():
            return stream.put(request.key, request.value, prev_kv=request.prev_kv)
        case DeleteRange():
            return stream.delete(request.key, request.range_end, prev_kv=request.prev_kv)
        case Txn():
            return stream.txn(request.compare, request.success, request.failure)
        case Range():
            revision, local = request.revision, request.serializable
            return stream.range(request.key, request.range_end, revision=revision, serializable=local)
    raise TypeError(f"nobody asks for {request} over the stream")


class StreamWatcher:
    """Watches all below `e`, `l` and `s`, for a while, then by another client from where that one has come to."""

    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._from = self._before = 0

    async def run(self) -> None:
        lives = 0
        while self._going():
            lives += 1
            async with connected(self._world, f"{self._client.name}-{lives}") as stream:
                await self._live(stream)

    async def _live(self, stream: StreamClient) -> None:
        """Its start is told: one that the node chooses is known to the client alone."""
        history, name = self._world.history, self._client.name
        if not self._from:
            try:
                self._from = (await stream.range(b"q")).revision + 1
            except RaftError:
                return
        request = WatchRequest(b"q", b"t", self._from, True)
        number = history.watch(name, AT, request, self._before)
        self._before = number
        ending, minimal = Ending.CANCELLED, 0
        try:
            async with asyncio.timeout(LIFE_S):
                await self._listen(stream, number, request)
        except TimeoutError:
            pass
        except Compacted as error:
            ending, minimal = Ending.COMPACTED, error.minimal_revision
            self._from, self._before = minimal, 0
        history.watch_ended(number, ending, minimal)
        self._world.count(f"watch over the stream: {ending.value}")

    async def _listen(self, stream: StreamClient, number: int, request: WatchRequest) -> None:
        history = self._world.history
        watch = stream.watch(
            request.key, request.range_end, start_revision=request.start_revision, prev_kv=True, progress_s=PROGRESS_S
        )
        async with watch:
            async for events in watch:
                if events.events:
                    history.delivered(number, (events,))
                    self._world.count("watch over the stream: delivered")
                else:
                    history.progressed(number, events.revision)
                self._from = watch.next_revision
