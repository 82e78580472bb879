"""Mixed clients, all recorded: writes with ids and retries, transactions, reads on every path, watches that resume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from metastore.requests import LeaseGrant, LeaseKeepAlive, LeaseRevoke, Put, Range, Txn
from tests.sim.asking import STRICT, Asking
from tests.sim.cataloguing import Cataloguer
from tests.sim.clients import Client, result_of
from tests.sim.http_clients import HttpClient
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Ok, Path
from tests.sim.streaming import Streamer, StreamWatcher
from tests.sim.visitors import DEFAULTED, Visitor
from tests.sim.watching import Watcher
from tests.sim.world import World
from vault.reader import VaultReader
from vault.regions import Mode, Region, pack_region, region_key


class Workload:
    """`pause_s`: the longest time between two operations of a client."""

    def __init__(self, world: World, *, clients: int = 3, pause_s: float = 1.0) -> None:
        self.world, self.pause_s = world, pause_s
        self.chance = world.chance
        self.going = True
        self.asking = Asking(world)
        self.clients = [Client(world, f"c{number}") for number in range(1, clients + 1)]
        self.tasks: list[asyncio.Task[Any]] = []
        self.readers: dict[str, int] = {}

    def start(self) -> None:
        for client in self.clients:
            self.tasks.append(client.process.start(self._work(client)))
        leaser, watcher = Client(self.world, "lessee"), Client(self.world, "watcher")
        self.tasks.append(leaser.process.start(self._lease(leaser)))
        streamer, stream_watcher = Client(self.world, "streamer"), Client(self.world, "stream-watcher")
        streams = Streamer(streamer, self.asking.anything, lambda: self.going, self.pause_s)
        self.tasks.append(streamer.process.start(streams.run()))
        self.tasks.append(stream_watcher.process.start(StreamWatcher(stream_watcher, lambda: self.going).run()))
        if self.world.settings.http:
            by_http = Client(self.world, "http")
            http = HttpClient(by_http, self.asking, lambda: self.going, self.pause_s)
            self.tasks.append(by_http.process.start(http.run()))
        cataloguer = Client(self.world, "cataloguer")
        self.tasks.append(cataloguer.process.start(Cataloguer(cataloguer, lambda: self.going).run()))
        visitor = Client(self.world, "visitor")
        self.tasks.append(visitor.process.start(Visitor(visitor, lambda: self.going).run()))
        self.tasks.append(watcher.process.start(Watcher(watcher, lambda: self.going).run()))
        self._look_after_readers()

    def stop(self) -> None:
        self.going = False

    def check(self) -> None:
        """Raises what a client could not bear."""
        for task in self.tasks:
            if task.done():
                task.result()

    async def prepare(self) -> int:
        """The strict region is agreed on before anybody counts on it: from which revision on it is."""
        client = self.clients[0]
        regions = (Region("s", b"s/", Mode.STRICT, self.world.settings.policy), DEFAULTED)
        puts = tuple(Put(region_key(region.name), pack_region(region)) for region in regions)
        host = self.world.leader() or self.world.members[0]
        written = await self.world.ask(
            client.process, client.name, host.http, lambda node: node.service.write(Txn(success=puts), own=True)
        )
        return int(written.revision)

    # Writers and readers

    async def _work(self, client: Client) -> None:
        choices: list[tuple[float, Callable[[Client], Coroutine[Any, Any, Any]]]] = [
            (0.30, lambda client: client.write(self.asking.put())),
            (0.38, lambda client: client.write(self.asking.delete())),
            (0.52, lambda client: client.write(self.asking.transaction())),
            (0.68, lambda client: client.read(self.asking.read())),
            (0.72, lambda client: client.read(self.asking.local())),
            (0.76, lambda client: client.read(self.asking.past())),
            (1.00, self._fenced),
        ]
        while self.going:
            await asyncio.sleep(self.pause_s * self.chance.random())
            lot = self.chance.random()
            await next(act for bound, act in choices if lot < bound)(client)

    async def _fenced(self, client: Client) -> None:
        await client.fenced(self.chance.choice(list(self.world.hosts.values())), self.chance.choice(STRICT))

    # Readers beside the nodes

    def _look_after_readers(self) -> None:
        """Each machine has a process that reads its vault, from when there is one; it outlives the node."""
        if not self.going:
            return
        for host in self.world.hosts.values():
            if host.vault is not None and (host.reader_process is None or host.reader_process.dead):
                host.reader_process = host.new_process(f"reader at {host.id}")
                self.tasks.append(host.reader_process.start(self._reader(host)))
        self.world.simulation.after(0.5, self._look_after_readers)

    async def _reader(self, host: Host) -> None:
        process, vault = host.reader_process, host.vault
        assert process is not None
        assert vault is not None
        reader = VaultReader.over(vault, clock_ns=lambda: int(process.now() * 1e9), wait_s=0.05)
        while self.going:
            await asyncio.sleep(self.pause_s * self.chance.random())
            if host.vault is not None and host.vault.backend is not vault.backend:
                vault = host.vault
                reader = VaultReader.over(vault, clock_ns=lambda: int(process.now() * 1e9), wait_s=0.05)
            await self._read_beside(host, reader)

    async def _read_beside(self, host: Host, reader: VaultReader) -> None:
        history, key = self.world.history, self.chance.choice(STRICT)
        number = history.begin(f"reader at {host.id}", host.id, Path.VAULT_READER, Range(key))
        try:
            item = await reader.get_item_async(key)
        except EXPECTED as error:
            outcome = outcome_of(error)
            history.end(number, outcome)
            self.world.count(f"reader: {type(error).__name__}")
            return
        history.end(number, Ok(result_of(item)))
        self.world.count("reader: Ok")
        self.world.note(host.id, f"reader {number} {item.mod_revision if item else 0}")

    # Leases

    async def _lease(self, client: Client) -> None:
        """A key that lives as long as somebody says so."""
        key = b"q/owner"
        while self.going:
            granted = await client.write(LeaseGrant(2 + int(4 * self.chance.random())))
            if isinstance(granted, Ok):
                lease = granted.result.id
                await client.write(Put(key, self.asking.value(), lease=lease))
                for _ in range(int(4 * self.chance.random())):
                    await asyncio.sleep(1.0)
                    await client.write(LeaseKeepAlive(lease), tries=1)
                if self.chance.random() < 0.5:
                    await client.write(LeaseRevoke(lease))
            await client.read(Range(key))
            await asyncio.sleep(2.0 * self.chance.random())
