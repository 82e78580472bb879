"""Mixed clients, all recorded: writes with ids and retries, transactions, reads on every path, watches that resume.

Keys below `s/` are in a strict region, those below `q/` are not. Few keys, so that clients meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    LeaseGrant,
    LeaseKeepAlive,
    LeaseRevoke,
    Put,
    Range,
    Txn,
)
from tests.sim.cataloguing import Cataloguer
from tests.sim.clients import Client, result_of
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED, outcome_of
from tests.sim.seen import Ok, Path
from tests.sim.visitors import DEFAULTED, Visitor
from tests.sim.watching import Watcher
from tests.sim.world import World
from vault.reader import VaultReader
from vault.regions import Mode, Region, pack_region, region_key

STRICT = (b"s/a", b"s/b", b"s/c")
EVENTUAL = (b"q/a", b"q/b")
KEYS = STRICT + EVENTUAL


class Workload:
    """`pause_s`: the longest time between two operations of a client."""

    def __init__(self, world: World, *, clients: int = 3, pause_s: float = 1.0) -> None:
        self.world, self.pause_s = world, pause_s
        self.chance = world.chance
        self.going = True
        self.numbers = 0
        self.clients = [Client(world, f"c{number}") for number in range(1, clients + 1)]
        self.tasks: list[asyncio.Task[Any]] = []
        self.readers: dict[str, int] = {}

    def start(self) -> None:
        for client in self.clients:
            self.tasks.append(client.process.start(self._work(client)))
        leaser, watcher = Client(self.world, "lessee"), Client(self.world, "watcher")
        self.tasks.append(leaser.process.start(self._lease(leaser)))
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
            (0.30, self._put),
            (0.38, self._delete),
            (0.52, self._transaction),
            (0.68, self._read),
            (0.72, self._local),
            (0.76, self._past),
            (1.00, self._fenced),
        ]
        while self.going:
            await asyncio.sleep(self.pause_s * self.chance.random())
            lot = self.chance.random()
            await next(act for bound, act in choices if lot < bound)(client)

    def _value(self) -> bytes:
        self.numbers += 1
        return b"%d" % self.numbers

    async def _put(self, client: Client) -> None:
        await client.write(Put(self.chance.choice(KEYS), self._value(), prev_kv=self.chance.random() < 0.3))

    async def _delete(self, client: Client) -> None:
        await client.write(DeleteRange(self.chance.choice(KEYS), prev_kv=True))

    async def _transaction(self, client: Client) -> None:
        """Becomes the owner of a key that nobody owns, or changes two keys at once."""
        one, other = self.chance.choice(KEYS), self.chance.choice(KEYS)
        if self.chance.random() < 0.5 or one == other:
            absent = Compare(one, CompareTarget.VERSION, CompareResult.EQUAL, 0)
            request = Txn((absent,), (Put(one, self._value()),), (Range(one),))
        else:
            value = self._value()
            request = Txn(success=(Put(one, value), Put(other, value)))
        await client.write(request)

    async def _read(self, client: Client) -> None:
        await client.read(Range(self.chance.choice(KEYS)) if self.chance.random() < 0.7 else Range(b"q", b"t"))

    async def _local(self, client: Client) -> None:
        await client.read(Range(self.chance.choice(KEYS), serializable=True))

    async def _past(self, client: Client) -> None:
        """Of a revision of before; perhaps one that is compacted by now."""
        revision = self.chance.randint(max(1, self.world.revision - 30), self.world.revision)
        span = (self.chance.choice(KEYS), b"") if self.chance.random() < 0.5 else (b"q", b"t")
        await client.read(Range(*span, revision=revision))

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
        self.world.count(f"way of a request: {Path.VAULT_READER.value}")
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
                await client.write(Put(key, self._value(), lease=lease))
                for _ in range(int(4 * self.chance.random())):
                    await asyncio.sleep(1.0)
                    await client.write(LeaseKeepAlive(lease), tries=1)
                if self.chance.random() < 0.5:
                    await client.write(LeaseRevoke(lease))
            await client.read(Range(key))
            await asyncio.sleep(2.0 * self.chance.random())
