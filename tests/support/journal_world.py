"""Two copies of a journal, a metadata store and clients in simulated time, network and disk (issue 17, "Activation").

Every process can be killed, paused and cut off. A killed process loses what it did not sync: of each file a random part
of the unsynced end stays, with missing sectors as zeros.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.base.frames import Encoder, FrameParser
from palisade.catalog.forced_activation import Operator
from palisade.journal.active import Active
from palisade.journal.agreed import LockHolder, RoleRecord
from palisade.journal.aside import AsideReport
from palisade.journal.blocks import read_file_header, scan
from palisade.journal.channel import AtOnce, Channel, Inbox
from palisade.journal.client import JournalClient
from palisade.journal.copy_state import CopyOptions, CopyState
from palisade.journal.errors import AppendUnknown, JournalError
from palisade.journal.log import JournalLog
from palisade.journal.role import RoleRunner
from palisade.journal.service import JournalService
from palisade.metastore.requests import Command, Range, Txn
from palisade.service.callers import UNRESTRICTED
from tests.support.claims_world import ClaimsWorld, SimulatedStore
from tests.support.journal_disk import Flip, SimDisk, SimFiles
from tests.support.simulation import Process

ROLE = "orders"
TTL_S = 1
NAMES = ("a", "b")
LATENCY_S = 0.002

logging.getLogger("palisade.journal").setLevel(logging.CRITICAL)


class SimChannel:
    """One end of a connection. Frames are encoded, as on a real wire."""

    def __init__(self, network: SimNetwork, process: Process) -> None:
        self.network = network
        self.process = process
        self.peer: SimChannel | None = None
        self._inbox = Inbox()
        self._closed = False
        self._encode = Encoder().encode
        self._parse = FrameParser().feed
        self._next_at = 0.0

    def send(self, kind: int, body: Any) -> None:
        if not self._closed:
            self._deliver(self._encode(kind, body))

    def _deliver(self, data: bytes | None) -> None:
        peer, simulation = self.peer, self.process.simulation
        assert peer is not None
        self._next_at = max(self._next_at, simulation.now + LATENCY_S * (0.5 + simulation.random.random()))

        def arrive() -> None:
            if self.network.connected(self.process, peer.process):
                peer.process.call(peer.arrive, data)
            else:
                self.network.held.append((self.process, peer.process, lambda: peer.process.call(peer.arrive, data)))

        simulation.after(self._next_at - simulation.now, arrive)

    def arrive(self, data: bytes | None) -> None:
        if data is None:
            self._inbox.end()
        else:
            self._inbox.put(self._parse(data))

    @property
    def ended(self) -> bool:
        return self._closed

    def reset(self) -> None:
        """Nothing is sent or received any more."""
        self._closed = True
        self.process.call(self.arrive, None)

    async def drain(self) -> None: ...

    async def receive(self, at_once: AtOnce | None = None) -> tuple[int, Any] | None:
        return await self._inbox.receive(at_once)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._inbox.end()
            self._deliver(None)


class SimNetwork:
    """`cuts`: pairs of names that can't reach each other; messages between them wait, as in TCP."""

    def __init__(self) -> None:
        self.services: dict[str, tuple[Process, JournalService]] = {}
        self.cuts: set[frozenset[str]] = set()
        self.held: list[tuple[Process, Process, Any]] = []
        self._channels: list[SimChannel] = []

    def opened(self, *ends: SimChannel) -> None:
        self._channels = [each for each in self._channels if not each.ended] + list(ends)

    def reset(self, *names: str) -> None:
        """Both ends of each connection between these two see its end at once; what is under way is lost."""
        for each in self._channels:
            if each.peer is not None and {each.process.name, each.peer.process.name} == set(names):
                each.reset()

    def connected(self, one: Process, other: Process) -> bool:
        return frozenset((one.name, other.name)) not in self.cuts

    def heal(self) -> None:
        self.cuts.clear()
        held, self.held = self.held, []
        for _, _, deliver in held:
            deliver()

    def dialler(self, process: Process) -> Dialler:
        return Dialler(self, process)


class Dialler:
    def __init__(self, network: SimNetwork, process: Process) -> None:
        self._network = network
        self._process = process

    async def dial(self, address: str) -> Channel:
        await asyncio.sleep(LATENCY_S)
        found = self._network.services.get(address)
        if found is None or found[0].dead:
            raise ConnectionRefusedError(111, "refused")
        process, service = found
        if not self._network.connected(self._process, process):
            await asyncio.sleep(1.0)
            raise TimeoutError
        near, far = SimChannel(self._network, self._process), SimChannel(self._network, process)
        near.peer, far.peer = far, near
        self._network.opened(near, far)
        process.on_death[near] = lambda: near.process.call(near.arrive, None)
        self._process.on_death[far] = lambda: far.process.call(far.arrive, None)
        process.call(lambda: process.start(service.serve(far)))
        return near


SLOW_WRITE = 0.3
SLOW_WRITE_S = 4.0


class RoleStoreOf(SimulatedStore):
    """The store's client of one copy. Some writes of the record arrive late, even if their sender is dead by then."""

    def __init__(self, world: JournalWorld, process: Process) -> None:
        super().__init__(world.service)
        self._world = world
        self._process = process
        self.status_s = 0.0
        """How long the status is under way."""

    async def _call(self, name: str, *arguments: Any) -> Any:
        assert name == "status"
        await self._answer()
        await asyncio.sleep(self.status_s)
        return {"generation": 1}

    async def _write(self, request: Command, timeout_s: float | None = None) -> Any:
        simulation = self._process.simulation
        if not isinstance(request, Txn) or not self._world.slow or simulation.random.random() > SLOW_WRITE:
            return await super()._write(request, timeout_s)
        done: asyncio.Future[Any] = self._process.loop.create_future()
        late = self._late(request, done)
        simulation.after(
            simulation.random.random() * SLOW_WRITE_S, lambda: self._world.store_process.start(late) and None
        )
        return await done

    async def _late(self, request: Command, done: asyncio.Future[Any]) -> None:
        try:
            result = await self._service.write(request, timeout_s=5.0, caller=UNRESTRICTED)
        except PalisadeError as error:
            refusal = error
            self._process.call(lambda: done.done() or done.set_exception(refusal))
        else:
            self._process.call(lambda: done.done() or done.set_result(result))


@dataclass(slots=True)
class Place:
    """Where one copy lives: its disk, and its process while it runs."""

    name: str
    disk: SimDisk
    primary: bool
    process: Process | None = None
    runner: RoleRunner | None = None
    store: RoleStoreOf | None = None
    failure: BaseException | None = None
    reports: list[AsideReport] = field(default_factory=list)

    @property
    def active(self) -> Active | None:
        return self.runner.active if self.process and not self.process.dead and self.runner else None


class JournalWorld(ClaimsWorld):
    """`acknowledged`: number -> content of every entry whose append was answered."""

    def __init__(self, seed: int = 1, *, allow_failback: bool = False, reserves: bool | None = None) -> None:
        """`reserves`: whether the file systems can reserve space; by chance without it."""
        super().__init__(seed)
        self.network = SimNetwork()
        self.allow_failback = allow_failback
        self.places = {name: Place(name, SimDisk(self.simulation.random, reserves), name == "a") for name in NAMES}
        self.acknowledged: dict[int, bytes] = {}
        self.unknown = 0
        self.slow = False
        """Whether writes of the record may arrive late."""
        self.service = self._service
        self.store_process = self.simulation.process("store")
        self.activations: list[str] = []
        self.violations: list[str] = []
        self.lives = 0
        self.flip: Flip | None = None
        """The bit that is wrong on a disk now."""
        self.flips = self.mended = 0
        self.simulation.after_turn = lambda _process: self._check_actives()

    def start(self, name: str, *, forced_by: Operator | None = None) -> Place:
        place, self.lives = self.places[name], self.lives + 1
        process = self.simulation.process(name, offset_s=1000.0 * self.lives)
        own = LockHolder(name, name)
        options = CopyOptions(ROLE, own, place.primary, self.allow_failback, TTL_S, forced_by=forced_by)
        place.store = RoleStoreOf(self, process)
        place.process, place.failure = process, None

        async def live() -> None:
            files = SimFiles(place.disk, process)
            log = JournalLog(files, file_bytes_max=4096, preallocates=True)
            copy = CopyState(files, options, log, place.reports.append)
            assert place.store is not None
            record = RoleRecord(place.store, ROLE, options.own, TTL_S, process.now)
            network = self.network.dialler(process)
            place.runner = RoleRunner(copy, record, network, lambda _active: self.activations.append(name))
            self.network.services[name] = process, JournalService(place.runner)
            try:
                await place.runner.run()
            except (JournalError, OSError) as error:
                place.failure = error

        process.start(live())
        return place

    def kill(self, name: str, *, power: bool = True) -> None:
        """`power`: unsynced data may be lost as well."""
        place = self.places[name]
        if place.process is not None and not place.process.dead:
            place.process.kill()
            if power:
                place.disk.crash()

    def active(self) -> Place | None:
        """The copy that may answer now."""
        found = [place for place in self.places.values() if place.active is not None and place.active.in_time]
        return found[0] if found else None

    def _check_actives(self) -> None:
        found = [place.name for place in self.places.values() if place.active is not None and place.active.in_time]
        if len(found) > 1 and not self.violations:
            self.violations.append(f"{self.simulation.now:.3f}: {found} are active")

    # Clients.

    def client(self, name: str = "client", timeout_s: float = 5.0) -> tuple[Process, JournalClient]:
        process = self.simulation.process(name)
        dialler = self.network.dialler(process)
        return process, JournalClient(ROLE, NAMES, timeout_s=timeout_s, network=dialler, clock=process.now)

    def append(self, *contents: bytes, within_s: float = 30.0) -> int:
        """Append by a client of its own; the number of the last entry."""
        process, client = self.client()

        async def run() -> int:
            first, last = await client.append_many(contents)
            self.note(first, contents)
            client.close()
            return last

        number: int = self.simulation.run(process, run(), within_s=within_s)
        return number

    def note(self, first: int, contents: tuple[bytes, ...]) -> None:
        for number, content in enumerate(contents, first):
            if self.acknowledged.get(number, content) != content:
                self.violations.append(f"entry {number} was acknowledged twice")
            self.acknowledged[number] = content

    def load(self, name: str = "load", pause_s: float = 0.03) -> Process:
        """A client that appends until the end."""
        process, client = self.client(name, timeout_s=3.0)

        async def run() -> None:
            count = 0
            while True:
                count += 1
                contents = tuple(f"{name}-{count}-{each}".encode() * (1 + count % 9) for each in range(1 + count % 3))
                try:
                    first, _ = await client.append_many(contents)
                    self.note(first, contents)
                except AppendUnknown:
                    self.unknown += 1
                except JournalError:
                    pass
                await asyncio.sleep(pause_s)

        process.start(run())
        return process

    # What is there.

    def entries(self, name: str) -> dict[int, bytes]:
        """Those on the disk of a copy, synced or not."""
        found: dict[int, bytes] = {}
        for file_name, file in sorted(self.places[name].disk.files.items()):
            if file_name.endswith(".journal") and not file_name.startswith("aside-"):
                data = bytes(file.content)
                before = read_file_header(data, file_name)
                assert before is not None
                for _, block in scan(data, file_name, before):
                    found |= dict(block.entries())
        return found

    def lost(self) -> list[int]:
        """Acknowledged entries that the active copy does not have."""
        place = self.active()
        assert place is not None
        there = self.entries(place.name)
        return [number for number, content in self.acknowledged.items() if there.get(number) != content]

    def record(self) -> bytes | None:
        kvs = self.group.store.range(Range(b"activation/record/orders")).kvs
        return kvs[0].value if kvs else None

    # Waiting.

    def until_active(self, name: str | None = None, within_s: float = 30.0) -> Place:
        def holds() -> bool:
            place = self.active()
            return place is not None and (name is None or place.name == name)

        self.simulation.run_until(holds, within_s=within_s)
        place = self.active()
        assert place is not None
        return place

    def until_in_sync(self, within_s: float = 30.0) -> None:
        def holds() -> bool:
            place = self.active()
            return place is not None and place.active is not None and place.active.progress.adopted

        self.simulation.run_until(holds, within_s=within_s)
