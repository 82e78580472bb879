"""A cluster and a node that recovers from it, in memory, in simulated time, with a crash or a fault at any step.

The source is the real `StoreSource` over the real state machine; between the two and the node there is a fault list.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from palisade.metastore.requests import Command, DeleteRange, FoundCluster, Put
from palisade.recovery.catchup import Difference
from palisade.recovery.errors import SourceUnavailable
from palisade.recovery.follower import Follower
from palisade.recovery.ports import RevisionSource
from palisade.recovery.recovery import Settings, World
from palisade.recovery.report import RecoveryReport
from palisade.recovery.store_source import StoreSource
from palisade.vault.change import Item, Revision, VaultEvent, events_of
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.tables import Backend, Changes, VaultTable
from palisade.vault.vault import Vault
from tests.support.hand_clock import Clock
from tests.support.meta_driver import Driver
from tests.support.vault_feed import compact, full, items_of, state_of, write_some

PREFIX = b"/assigned/"
"""Keys below it assign partitions to this node, with their versions."""


class Crash(BaseException):
    """The process is dead: no handler catches this."""


class SimulatedClock(Clock):
    """Time passes when a task sleeps, or a test advances it."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.on_sleep: Callable[[float], None] | None = None

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.on_sleep is not None and seconds:
            self.on_sleep(seconds)
        await asyncio.sleep(0)


class Steps:
    """Counts all external effects of a process, and kills it before or after one of them."""

    def __init__(self, crash_at: int | None = None, *, after: bool = False) -> None:
        self.names: list[str] = []
        self._crash_at, self._after = crash_at, after

    async def take(self, name: str, step: Callable[[], Awaitable[Any]]) -> Any:
        self._before(name)
        result = await step()
        self._behind()
        return result

    def take_now(self, name: str, step: Callable[[], None]) -> None:
        self._before(name)
        step()
        self._behind()

    def _before(self, name: str) -> None:
        self.names.append(name)
        if len(self.names) == self._crash_at and not self._after:
            raise Crash(f"before {name}")

    def _behind(self) -> None:
        if len(self.names) == self._crash_at and self._after:
            raise Crash(f"after {self.names[-1]}")


class SteppedBackend:
    """A vault's disk, each commit of which is a step."""

    def __init__(self, disk: MemoryBackend, steps: Steps) -> None:
        self._disk, self._steps = disk, steps
        self.get, self.get_many, self.scan, self.key_pages = disk.get, disk.get_many, disk.scan, disk.key_pages
        self.close = disk.close
        self.commit_in_slices = disk.commit_in_slices

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        self._steps.take_now("commit", lambda: self._disk.commit(changes, cleared))


class SteppedSource:
    """A source, each request to which is a step. `faults`: behaviour of the next requests, by name."""

    def __init__(self, make: Callable[[Driver], StoreSource], cluster: Driver, steps: Steps) -> None:
        self._make, self._source, self._steps = make, make(cluster), steps
        self.before: dict[str, Callable[[], None]] = {}
        """Run before each request of that name: it may raise, write to the cluster, compact."""
        self.spoil: dict[str, Callable[[Any], Any]] = {}
        """A transformation of responses."""
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def connect(self, cluster: Driver) -> None:
        """From now on another source responds."""
        self._source = self._make(cluster)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def ask(*arguments: Any) -> Any:
            self.asked.append((name, arguments))
            if name in self.before:
                self.before[name]()
            answer = await self._steps.take(name, lambda: getattr(self._source, name)(*arguments))
            return self.spoil[name](answer) if name in self.spoil else answer

        return ask


class RecordingListeners:
    """Listeners that keep the content of the vault from their start in memory, and apply the changes that they are
    notified of."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.state: dict[bytes, Item] | None = None
        self.revisions: list[int] = []
        self.differences: list[VaultEvent] = []
        self.on_revision: Callable[[Revision], None] | None = None
        self.last_closed = True

    async def start(self) -> None:
        assert self.state is None, "components start once"
        self.state = {item.key: item for item in self._node.vault.range(b"")}

    async def revision(self, revision: Revision) -> None:
        assert self.state is not None, "notified before all components had started"
        if self.on_revision is not None:
            self.on_revision(revision)
        self.revisions.append(revision.number)
        for event in events_of(revision):
            self._change(event)

    async def difference(self, revision: int, events: Sequence[VaultEvent], last: bool) -> None:
        assert self.state is not None, "notified before all components had started"
        assert revision == self._node.vault.revision
        for event in events:
            assert event.previous == self.state.get(event.key)
            self.differences.append(event)
            self._change(event)
        self.last_closed = last

    def _change(self, event: VaultEvent) -> None:
        assert self.state is not None
        self.state.pop(event.key, None)
        if event.item is not None:
            self.state[event.key] = event.item
        if event.key.startswith(PREFIX):
            self._move(event.key[len(PREFIX) :].decode(), event.item)

    def _move(self, name: str, item: Item | None) -> None:
        """A running component moves its partitions by itself, as notified."""
        self._node.shelf.there.pop(name, None)
        if item is not None:
            self._node.shelf.there[name] = item.value.decode()


class Shelf:
    """Local partitions, as a disk stores them: an interrupted step leaves a half one, which looks complete."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.half: set[str] = set()


class Resources:
    def __init__(self, node: Node) -> None:
        self._node, self._shelf = node, node.shelf
        self.done: list[str] = []

    async def local(self) -> dict[str, str]:
        return dict(self._shelf.there)

    async def assigned(self) -> dict[str, str]:
        return self._node.assigned()

    async def evict(self, name: str) -> None:
        self._shelf.half.add(name)

        async def work() -> None:
            self._shelf.there.pop(name, None)
            self._shelf.half.discard(name)
            self.done.append(f"evict {name}")

        await self._node.steps.take("evict", work)

    async def fetch(self, name: str, version: str) -> None:
        self._shelf.there[name] = version
        self._shelf.half.add(name)

        async def work() -> None:
            self._shelf.there[name] = version
            self._shelf.half.discard(name)
            self.done.append(f"fetch {name}")

        await self._node.steps.take("fetch", work)


class Node:
    """One start of a node. `disk` and `shelf` survive it."""

    def __init__(
        self,
        cluster: Driver,
        disk: MemoryBackend,
        shelf: Shelf,
        *,
        steps: Steps | None = None,
        difference: int = 0,
        applied: RevisionSource | None = None,
        **settings: Any,
    ) -> None:
        self.cluster, self.disk, self.shelf = cluster, disk, shelf
        self.steps = steps or Steps()
        self.clock = SimulatedClock()
        self.clock.on_sleep = lambda seconds: cluster.wait(int(seconds * 1000))
        backend: Backend = SteppedBackend(disk, self.steps)
        self.vault = Vault(backend)
        self.recorded = RecordingListeners(self)
        self.resources = Resources(self)
        self.source = SteppedSource(self._store_source, cluster, self.steps)
        self.difference = Difference(difference)
        world = World(
            self.vault, self.source, self.recorded, self.resources, self.clock, self.difference, applied=applied
        )
        self.progress: list[Any] = []
        self.states: list[bool] = []
        self.follower = Follower(
            world,
            Settings("n1", **settings),
            on_progress=self.progress.append,
            on_recovering=self.states.append,
        )

    def _store_source(self, cluster: Driver) -> StoreSource:
        async def nothing(*_: Any) -> None:
            await asyncio.sleep(0)

        async def propose(command: Command) -> Any:
            return cluster.do(command)

        async def news(_: int) -> None:
            await self.clock.sleep(1.0)

        return StoreSource("n1", cluster.store, barrier=nothing, propose=propose, others=nothing, news=news)

    async def recover(self, *, running: bool = False) -> RecoveryReport:
        return await self.follower.recover(running=running)

    def check(self) -> None:
        """Vault, listeners and local resources equal the cluster's state; nothing is left over."""
        assert self.vault.recovering is None
        assert self.vault.plan() is None
        assert items_of(self.vault) == state_of(self.cluster, self.vault.revision)
        assert self.vault.chain == self.cluster.store.chain_at(self.vault.revision)
        assert self.recorded.state == {item.key: item for item in self.vault.range(b"")}
        assert self.recorded.last_closed
        assert self.shelf.there == self.assigned()
        assert not self.shelf.half
        assert list(self.disk.scan(VaultTable.DIFFERENCE, b"", None)) == []

    def assigned(self) -> dict[str, str]:
        found = self.vault.range(PREFIX, PREFIX[:-1] + b"0")
        return {item.key[len(PREFIX) :].decode(): item.value.decode() for item in found}


def founded(cluster: Driver) -> Driver:
    """Its first leader has chosen its id."""
    cluster.do(FoundCluster("c1"))
    return cluster


class Bench:
    """A cluster, and a node's disks over its starts."""

    def __init__(self, seed: int = 1, writes: int = 60) -> None:
        self.rng = random.Random(seed)
        self.cluster = founded(full([]))
        self.disk, self.shelf = MemoryBackend(), Shelf()
        self.write(writes)

    def write(self, writes: int) -> None:
        write_some(self.cluster, self.rng, writes)

    def assign(self, **versions: str) -> None:
        self.cluster.do(DeleteRange(b"/assigned/", b"/assigned0"))
        for name, version in versions.items():
            self.cluster.do(Put(b"/assigned/" + name.encode(), version.encode()))

    def compact(self) -> None:
        if self.cluster.store.revision > self.cluster.store.minimal_revision:
            compact(self.cluster, self.cluster.store.revision)

    def node(self, **options: Any) -> Node:
        return Node(self.cluster, self.disk, self.shelf, **options)

    async def once(self, **options: Any) -> Node:
        """A start that is known to end well."""
        node = self.node(**options)
        await node.recover()
        node.check()
        return node


def unavailable(times: int) -> Callable[[], None]:
    """The metadata store has no majority for so many requests."""
    left = [times]

    def fail() -> None:
        if left[0]:
            left[0] -= 1
            raise SourceUnavailable("no majority")

    return fail
