"""Clients of the stream port: the product's `client`, over simulated sockets, with its own retries, moves and watches.

Each request is recorded as one operation, however often the client sent it: request ids must ensure that it has one
effect and its result (M3). A client belongs to no single node; the history records the path "stream".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from palisade.client.client import Client as StreamClient
from palisade.client.watch import HistoryBroken
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import DeleteRange, Put, Range, Txn, WatchRequest
from palisade.raftgroup.errors import RaftError
from tests.sim.asking import Asking
from tests.sim.clients import Client
from tests.sim.node import STREAM, Host
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Ending, Ok, Outcome, Path, Request
from tests.sim.watching import EVERYTHING, Wanted, life_s
from tests.sim.world import World

AT = "stream"
TIMEOUT_S = 5.0
PROGRESS_S = 2.0
BURST = 4


class Streamer:
    """Sometimes it sends several requests at once."""

    def __init__(self, client: Client, asking: Asking, going: Callable[[], bool], pause_s: float) -> None:
        self._client, self._asking, self._going, self._pause_s = client, asking, going, pause_s
        self._world = client.world

    async def run(self) -> None:
        async with connected(self._world, self._client.name) as stream:
            while self._going():
                await asyncio.sleep(self._pause_s * self._world.chance.random())
                many = self._world.chance.randint(2, BURST) if self._world.chance.random() < 0.2 else 1
                await asyncio.gather(*(self.ask(stream, self._asking.anything()) for _ in range(many)))

    async def ask(self, stream: StreamClient, request: Request) -> Outcome:
        history, client = self._world.history, self._client
        number = history.begin(client.name, AT, Path.STREAM, request)
        try:
            outcome: Outcome = Ok(await sent(stream, request))
        except EXPECTED as error:
            outcome = outcome_of(error)
        history.end(number, outcome)
        self._asking.observe(request, outcome)
        self._world.count(f"client stream {type(request).__name__}: {type(outcome).__name__}")
        revision = getattr(outcome.result, "revision", "-") if isinstance(outcome, Ok) else "-"
        self._world.note(client.name, f"{number} {type(request).__name__} {type(outcome).__name__} {revision}")
        return outcome


class LastingWatcher:
    """One client, whose watch continues over restores, or would: if the history is another one, it must end (M4).

    It is not recorded, since a watch of two histories belongs to neither. It checks its events itself.
    """

    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._world, self._going = client, client.world, going

    async def run(self) -> None:
        breaks = 0
        async with connected(self._world, self._client.name) as stream:
            while self._going():
                try:
                    await self._watch(stream)
                except HistoryBroken as error:
                    self._world.count("watch over a restore: ended")
                    breaks += 1
                    if breaks > self._world.epoch:
                        shown = f"{self._client.name} got {breaks} breaks, there were {self._world.epoch}"
                        self._world.fail("watch contract", f"{shown}: {error}")
                except (Compacted, RaftError):
                    await asyncio.sleep(1.0)

    async def _watch(self, stream: StreamClient) -> None:
        """The first event shows its history. Events of the common part may come from a node that has not reached the
        break yet."""
        world, generation = self._world, 0
        async with stream.watch(b"q", b"t", progress_s=PROGRESS_S) as watch:
            async for events in watch:
                if not self._going():
                    return
                if not world.is_down and generation not in (0, world.generation) and events.revision > world.kept:
                    world.fail(
                        "watch contract",
                        f"{self._client.name} gets {events.revision} in generation {world.generation}, by a "
                        f"watch that began in generation {generation}",
                    )
                generation = generation or world.generation


def connected(world: World, name: str, at: Sequence[Host] = ()) -> StreamClient:
    """To any member, then to the leader by itself; or it stays `at` these."""
    endpoints = [f"{host.address}:{STREAM}" for host in at or world.members]
    return StreamClient(endpoints, timeout_s=TIMEOUT_S, client_id=name, follow_leader=not at)


def sent(stream: StreamClient, request: Request) -> Awaitable[Any]:
    """By the methods of the public client."""
    match request:
        case Put():
            return stream.put(
                request.key,
                request.value,
                lease=request.lease,
                prev_kv=request.prev_kv,
                ignore_value=request.ignore_value,
                ignore_lease=request.ignore_lease,
            )
        case DeleteRange():
            return stream.delete(request.key, request.range_end, prev_kv=request.prev_kv)
        case Txn():
            return stream.txn(request.compare, request.success, request.failure)
        case Range():
            return stream.range(
                request.key,
                request.range_end,
                limit=request.limit,
                revision=request.revision,
                sort_order=request.sort_order,
                sort_target=request.sort_target,
                serializable=request.serializable,
                keys_only=request.keys_only,
                count_only=request.count_only,
            )
    raise TypeError(f"no stream client sends {request}")


class StreamWatcher:
    """Watches all below `q` and `s`, for a while, then with another client from where that one has come to.

    `start`: the first revision; 0: later changes only. It checks `going` after every event.
    """

    def __init__(self, client: Client, going: Callable[[], bool], start: int = 0, wanted: Wanted = EVERYTHING) -> None:
        self._client, self._going, self._wanted = client, going, wanted
        self._world = client.world
        self._from, self._before = start, 0
        self.delivered = 0
        """How often it got events."""

    @property
    def next_revision(self) -> int:
        """The first revision that it has not received; 0: unknown."""
        return self._from

    async def run(self) -> None:
        lives = 0
        while self._going():
            lives += 1
            async with connected(self._world, f"{self._client.name}-{lives}") as stream:
                await self.live(stream)

    async def live(self, stream: StreamClient) -> None:
        """For `life_s` at most. Its start is recorded: one that the node chooses is known to the client alone."""
        history, name = self._world.history, self._client.name
        if not self._from:
            try:
                self._from = (await stream.range(b"q")).revision + 1
            except RaftError:
                return
        request = self._wanted.request(self._from, prev_kv=True)
        number = history.watch(name, AT, request, self._before)
        self._before = number
        ending, minimal = Ending.CANCELLED, 0
        try:
            async with asyncio.timeout(life_s(self._world.chance)):
                await self._listen(stream, number, request)
        except TimeoutError:
            pass
        except HistoryBroken:
            ending, self._from, self._before = Ending.OTHER_HISTORY, 0, 0
        except Compacted as error:
            ending, minimal = Ending.COMPACTED, error.minimal_revision
            self._from, self._before = minimal, 0
        history.watch_ended(number, ending, minimal)
        self._world.count(f"watch over the stream: {ending.value}")

    async def _listen(self, stream: StreamClient, number: int, request: WatchRequest) -> None:
        history = self._world.history
        watch = stream.watch(
            request.key,
            request.range_end,
            start_revision=request.start_revision,
            prev_kv=True,
            filters=tuple(sorted(request.filters)),
            progress_s=PROGRESS_S,
        )
        async with watch:
            async for events in watch:
                if events.events:
                    history.delivered(number, (events,))
                    self._world.count("watch over the stream: delivered")
                    self.delivered += 1
                else:
                    history.progressed(number, events.revision)
                self._from = watch.next_revision
                if not self._going():
                    return
