"""A client that watches at some member, and resumes at another one when that is gone."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from palisade.metastore.errors import Compacted
from palisade.metastore.requests import WatchRequest
from palisade.raftgroup.errors import NodeFailed
from palisade.service.watches import ProgressReport, Watching
from tests.sim.clients import Client
from tests.sim.node import Host
from tests.sim.seen import Ending

PROGRESS_S = 2.0
SILENT_S = 6.0
LOOK_S = 1.0
LIFE_S = 8.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The watched keys: everything below `q` and `s`, or less."""

    key: bytes = b"q"
    range_end: bytes = b"t"
    filters: frozenset[str] = frozenset()

    def request(self, start: int, *, prev_kv: bool = False) -> WatchRequest:
        return WatchRequest(self.key, self.range_end, start, prev_kv, filters=self.filters)


EVERYTHING = Wanted()
LESS = (
    Wanted(b"s/a", b""),
    Wanted(b"q/a", b""),
    Wanted(b"s/", b"s0"),
    Wanted(filters=frozenset({"delete"})),
    Wanted(filters=frozenset({"put"})),
)


def some(chance: Random) -> Wanted:
    return EVERYTHING if chance.random() < 0.6 else chance.choice(LESS)


def life_s(chance: Random) -> float | None:
    """Of one watch, usually; None: forever, until it breaks."""
    return None if chance.random() < 0.3 else LIFE_S


class Watcher:
    """`start`: the first revision; 0: later changes only.

    It checks `going` after every event, and each LOOK_S.
    """

    def __init__(self, client: Client, going: Callable[[], bool], start: int = 0, wanted: Wanted = EVERYTHING) -> None:
        self._client, self._going, self._wanted = client, going, wanted
        self._world = client.world
        self._from = start
        self._before = 0
        self.delivered = 0
        """How often it got events."""

    @property
    def next_revision(self) -> int:
        """The first revision that it has not received; 0: unknown."""
        return self._from

    async def run(self) -> None:
        while self._going():
            host = self._world.chance.choice(self._world.members)
            await self.watch(host)
            await asyncio.sleep(0.3 * self._world.chance.random())

    async def watch(self, host: Host) -> None:
        """Until it ends, at either side."""
        history = self._world.history
        request = self._wanted.request(self._from)
        number = history.watch(self._client.name, host.id, request, self._before)
        self._before = number
        queue: asyncio.Queue[Any] = asyncio.Queue()
        ending, minimal = Ending.BROKEN, 0
        try:
            began = await self._world.ask(
                self._client.process, self._client.name, host.http, lambda node: self._open(host, node, request, queue)
            )
            history.watch_began(number, began)
            self._from = self._from or began + 1
            ending, minimal = await self._listen(number, queue)
        except Compacted as error:
            ending, minimal = Ending.COMPACTED, error.minimal_revision
        except (ConnectionError, NodeFailed):
            pass
        if ending is Ending.COMPACTED:
            self._from, self._before = minimal, 0
        history.watch_ended(number, ending, minimal)

    async def _open(self, host: Host, node: Any, request: WatchRequest, queue: asyncio.Queue[Any]) -> int:
        """In the node's process: from now on it sends by itself, in order."""
        watching = node.key_values.watch(request, progress_s=PROGRESS_S)
        process = host.process
        assert process is not None
        process.start(self._send(host, watching, queue))
        return int(watching.revision)

    async def _send(self, host: Host, watching: Watching, queue: asyncio.Queue[Any]) -> None:
        network, own = self._world.network, self._client
        arrives = 0.0
        life = life_s(self._world.chance)
        until = math.inf if life is None else asyncio.get_running_loop().time() + life
        while asyncio.get_running_loop().time() < until:
            news: Any
            try:
                news = await watching.next()
            except Compacted as error:
                news = error
            if not network.passes(host.id, own.name):
                return
            arrives = max(arrives, network.simulation.now + network.stream_way(host.id, own.name))
            network.simulation.after(
                arrives - network.simulation.now, lambda news=news: own.process.call(queue.put_nowait, news)
            )
            if isinstance(news, Compacted):
                return
        watching.close()

    async def _listen(self, number: int, queue: asyncio.Queue[Any]) -> tuple[Ending, int]:
        history = self._world.history
        while self._going():
            news = await self._next(queue)
            if news is None:
                break
            if isinstance(news, Compacted):
                return Ending.COMPACTED, news.minimal_revision
            if isinstance(news, ProgressReport):
                history.progressed(number, news.revision)
                self._from = max(self._from, news.revision + 1)
                continue
            history.delivered(number, news)
            self._world.count("watch: delivered")
            self.delivered += 1
            self._from = news[-1].revision + 1
        return (Ending.BROKEN if self._going() else Ending.CANCELLED), 0

    async def _next(self, queue: asyncio.Queue[Any]) -> Any:
        """None if nothing arrives for SILENT_S, or the watch is not wanted any more."""
        for _ in range(int(SILENT_S / LOOK_S)):
            with contextlib.suppress(TimeoutError):
                return await asyncio.wait_for(queue.get(), LOOK_S)
            if not self._going():
                break
        return None
