"""Mixed clients, all recorded: writes with ids and retries, transactions, reads on every path, watches that resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from palisade.metastore.requests import DeleteRange, LeaseGrant, LeaseKeepAlive, LeaseRevoke, Put, Range, Txn
from palisade.service.callers import THIS_NODE
from palisade.vault.regions import Mode, Region, pack_region, region_key
from tests.sim.administrator import Administrator
from tests.sim.asking import EVERYTHING, OWNED, STRICT, Asking
from tests.sim.backups import Base
from tests.sim.batching import Batcher
from tests.sim.cataloguing import Cataloguer
from tests.sim.clients import Client
from tests.sim.counting import Counter
from tests.sim.expiring import Expirer
from tests.sim.giving_up import Operator
from tests.sim.history import History
from tests.sim.http_clients import HttpClient
from tests.sim.ingesting import Appender
from tests.sim.network import WINDOW_BYTES
from tests.sim.readers import ReaderBeside
from tests.sim.retrying import Retrier
from tests.sim.seen import Ok
from tests.sim.segmenting import Segmenter
from tests.sim.streaming import Streamer, StreamWatcher
from tests.sim.visitors import DEFAULTED, Visitor
from tests.sim.watching import Watcher, some
from tests.sim.world import World
from tests.support.simulation import Process

SLOW_S, SLOW_EVERY_S = 3.0, 4.0
FENCED = (*STRICT, OWNED[1])
"""The keys of readers of vaults."""
RANGES = 0.25
"""The part of the fenced reads that are ranges of strict keys and others, as of one revision."""
LIVES_MS = (500, 4_000)
"""How long the leases of keys are granted for."""
BEHIND_S = 3.5
"""How long at most their owner waits for the expiry of a lease that it does not keep alive."""
LOOK_S = 0.5


class Workload:
    """`pause_s`: the longest time between two operations of a client."""

    def __init__(self, world: World, *, clients: int = 3, pause_s: float = 1.0, asking: Asking | None = None) -> None:
        self.world, self.pause_s = world, pause_s
        self.chance = world.chance
        self.going = self.listening = True
        """Whether clients continue, and watches."""
        self.asking = asking or Asking(world.chance, lambda: world.revision)
        self._all: list[Client] = []
        self.clients = [self._client(f"c{number}") for number in range(1, clients + 1)]
        self._slow: list[Client] = []
        self._watchers: dict[str, Watcher | StreamWatcher] = {}
        self._tasks: list[tuple[Process, asyncio.Task[Any]]] = []
        self.readers: dict[str, int] = {}

    def _client(self, name: str) -> Client:
        """After a restore all clients are new ones: request ids belong to another history."""
        client = Client(self.world, name + "'" * self.world.epoch)
        self._all.append(client)
        return client

    def again(self, base: Base, ended: History) -> Workload:
        """Of the restored cluster, after that history."""
        workload = Workload(self.world, clients=len(self.clients), pause_s=self.pause_s, asking=self.asking)
        retrier = workload._client("retrier")
        workload.run(retrier.process, Retrier(retrier, base, ended).run())
        return workload

    def end(self) -> None:
        """They are gone, and get no results of their requests any more."""
        self.going = self.listening = False
        for client in self._all:
            client.process.kill()
        for host in self.world.hosts.values():
            host.kill_reader()

    def start(self) -> None:
        for client in self.clients:
            self.run(client.process, self._work(client))
        leaser, watcher = self._client("lessee"), self._client("watcher")
        self.run(leaser.process, self._lease(leaser))
        streamer, stream_watcher = self._client("streamer"), self._client("stream-watcher")
        self._slow = [streamer, stream_watcher]
        streams = Streamer(streamer, self.asking, lambda: self.going, self.pause_s)
        self.run(streamer.process, streams.run())
        if self.world.settings.http:
            by_http = self._client("http")
            self._slow.append(by_http)
            http = HttpClient(by_http, self.asking, lambda: self.going, self.pause_s)
            self.run(by_http.process, http.run())
        cataloguer = self._client("cataloguer")
        self.run(cataloguer.process, Cataloguer(cataloguer, lambda: self.going).run())
        if self.world.has_segments:
            segmenter, appender = self._client("segmenter"), self._client("appender")
            counter, operator = self._client("counter"), self._client("operator")
            self.run(segmenter.process, Segmenter(segmenter, lambda: self.going).run())
            self.run(appender.process, Appender(appender, lambda: self.going).run())
            self.run(counter.process, Counter(counter, lambda: self.going).run())
            self.run(operator.process, Operator(operator, lambda: self.going).run())
            batcher = self._client("batcher")
            self.run(batcher.process, Batcher(batcher, lambda: self.going).run())
        if self.world.has_expiry:
            expirer = self._client("expirer")
            self.run(expirer.process, Expirer(expirer, lambda: self.going).run())
        if self.world.has_rare:
            administrator = self._client("administrator")
            self.run(administrator.process, Administrator(administrator, lambda: self.going).run())
        visitor = self._client("visitor")
        self.run(visitor.process, Visitor(visitor, lambda: self.going).run())
        kinds: tuple[tuple[Client, type[Watcher | StreamWatcher]], ...]
        kinds = (watcher, Watcher), (stream_watcher, StreamWatcher)
        for client, kind in kinds:
            self._watchers[client.name] = kind(client, lambda: self.listening, wanted=some(self.chance))
            self.run(client.process, self._watchers[client.name].run())
        self._look_after_readers()
        if self.world.settings.window_bytes < WINDOW_BYTES:
            self._slow_down()

    def run(self, process: Process, client: Coroutine[Any, Any, Any]) -> None:
        """Until it ends by itself, which it does soon when no client continues."""
        self.look_after(process, process.start(client))

    def look_after(self, process: Process, task: asyncio.Task[Any]) -> None:
        """For a client that continues over restores: in the workload of each history."""
        self._tasks.append((process, task))

    def stop(self) -> None:
        """All but watches."""
        self.going = False

    def hang_up(self) -> None:
        """Watches, too."""
        self.listening = False

    def check(self) -> None:
        """Raises the unexpected error of a client."""
        for _, task in self._tasks:
            if task.done():
                task.result()

    def lagging_watches(self, revision: int) -> dict[str, int]:
        """The clients whose watches have not reached a revision, and the revision that they reached."""
        come = {name: watcher.next_revision - 1 for name, watcher in self._watchers.items()}
        return {name: at for name, at in come.items() if at < revision}

    def under_way(self) -> list[str]:
        """The clients that have not ended, were not killed, and are no watches."""
        running = (process.name for process, task in self._tasks if not task.done() and not process.dead)
        watching = self._watchers if self.listening else ()
        return [name for name in dict.fromkeys(running) if name not in watching]

    async def prepare(self) -> int:
        """The strict region is created before any client relies on it: returns the revision from which on it exists."""
        client = self.clients[0]
        regions = (Region("s", b"s/", Mode.STRICT, self.world.settings.policy), DEFAULTED)
        puts = tuple(Put(region_key(region.name), pack_region(region)) for region in regions)
        host = self.world.leader() or self.world.members[0]
        written = await self.world.ask(
            client.process,
            client.name,
            host.http,
            lambda node: node.key_values.write(Txn(success=puts), caller=THIS_NODE),
        )
        return int(written.revision)

    # Writers and readers

    async def _work(self, client: Client) -> None:
        choices: list[tuple[float, Callable[[Client], Coroutine[Any, Any, Any]]]] = [
            (0.28, lambda client: self._write(client, self.asking.put())),
            (0.36, lambda client: self._write(client, self.asking.delete())),
            (0.52, lambda client: self._write(client, self.asking.transaction())),
            (0.68, lambda client: self._read(client, self.asking.read())),
            (0.72, lambda client: self._read(client, self.asking.local())),
            (0.76, lambda client: self._read(client, self.asking.past())),
            (1.00, self._fenced),
        ]
        while self.going:
            await asyncio.sleep(self.pause_s * self.chance.random())
            lot = self.chance.random()
            await next(act for bound, act in choices if lot < bound)(client)

    async def _write(self, client: Client, request: Put | DeleteRange | Txn) -> None:
        self.asking.observe(request, await client.write(request))

    async def _read(self, client: Client, request: Range) -> None:
        self.asking.observe(request, await client.read(request))

    async def _fenced(self, client: Client) -> None:
        host = self.chance.choice(list(self.world.hosts.values()))
        if not self.world.is_asked(host.vault):
            return
        if self.chance.random() < RANGES:
            await client.fenced_range(host, *EVERYTHING)
        else:
            await client.fenced(host, self.chance.choice(FENCED))

    # Readers beside the nodes

    def _look_after_readers(self) -> None:
        """Each machine has a process that reads its vault, as soon as there is one; it outlives the node."""
        if not self.going:
            return
        for host in self.world.hosts.values():
            if host.vault is not None and host.reader is None:
                host.reader = ReaderBeside(self.world, host, lambda: self.going, self.pause_s)
                self.run(host.reader.process, host.reader.run())
        self.world.simulation.after(0.5, self._look_after_readers)

    # Clients that do not read for a while

    def _slow_down(self) -> None:
        """Data sent to them fill their windows."""
        if not self.going:
            return
        process = self.chance.choice(self._slow).process
        process.pause()
        self.world.simulation.after(SLOW_S * self.chance.random(), process.resume)
        self.world.simulation.after(SLOW_EVERY_S * self.chance.random(), self._slow_down)

    # Leases

    async def _lease(self, client: Client) -> None:
        """Two keys that are attached to a lease: then it is revoked, or expires, or other clients take over its
        keys."""
        while self.going:
            granted = await client.write(LeaseGrant(self.chance.randint(*LIVES_MS)))
            if isinstance(granted, Ok):
                lease, ttl_s = granted.result.id, granted.result.ttl_s
                value = self.asking.value()
                await self._write(client, Txn(success=tuple(Put(key, value, lease) for key in OWNED)))
                for _ in range(self.chance.randint(0, 3)):
                    await asyncio.sleep(min(1.0, 0.6 * ttl_s))
                    if not self.going:
                        break
                    await client.write(LeaseKeepAlive(lease), tries=1)
                await self._let_go(client, lease, ttl_s)
            await self._read(client, Range(self.chance.choice(OWNED)))
            await asyncio.sleep(self.chance.random())

    async def _let_go(self, client: Client, lease: int, ttl_s: float) -> None:
        lot = self.chance.random()
        if lot < 0.4:
            await client.write(LeaseRevoke(lease))
        elif lot < 0.9:
            waited_s, end_s = 0.0, ttl_s + BEHIND_S * self.chance.random()
            while self.going and waited_s < end_s:
                await asyncio.sleep(LOOK_S)
                waited_s += LOOK_S
