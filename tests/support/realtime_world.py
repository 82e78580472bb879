"""Ingesting data nodes in the world of `announcing_world.py`: rows arrive, segments are handed off, nodes die.

Checked by counts, with the product's own counting over a broker's view: each count has every row that was acknowledged
before it began, and no row that was not sent before it ended; so no gap and no overlap. A count is UNAVAILABLE only if
a node has died or lost its lease in this schedule. Checked at each acknowledgement: the segment was not given up. At
each removal of a copy or log: no broker returns the node for a segment whose rows it does not have any more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.catalog.errors import CatalogError
from palisade.catalog.realtime import grows
from palisade.catalog.realtime_rows import columns_from
from palisade.catalog.segment import ROOT, SegmentRecord
from palisade.client.realtime_changes import give_up
from palisade.client.segment_query import CountFailed, count_rows, lookup_all
from palisade.metastore.requests import DeleteRange, Put, Txn, prefix_end
from palisade.segments.assignment import last_assignment
from palisade.segments.names import ASSIGNMENTS, Wanted, assignment_key
from palisade.segments.realtime_handoff import FORGET_S
from palisade.wire.segment_errors import NoSuchSegment, SegmentsUnavailable
from tests.support.announcing_world import (
    NODES,
    AnnouncingWorld,
    Violation,
)
from tests.support.realtime_nodes import DAY, BrokerClient, IngestingNode

SOURCE = "sales"
COLUMNS = columns_from({"id": "int"})


class RealtimeWorld(AnnouncingWorld):
    """`segments_max`: that are opened."""

    nodes: dict[str, IngestingNode]  # type: ignore[assignment]

    def __init__(self, seed: int, fault: str = "", segments_max: int = 6) -> None:
        super().__init__(seed, fault)
        self.write(Txn((), (DeleteRange(ROOT, prefix_end(ROOT)),)))
        self.segments_max = segments_max
        self.processes = 0
        self.down: set[str] = set()
        self.troubles = 0
        """How often a node died or lost its lease."""
        self.sent: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.counted = False
        """Whether the last count was answered."""
        self.counts = self.unavailable = self.handed_off = self.given_up = 0
        self.nodes = {name: IngestingNode(self, name) for name in NODES}
        self.write(Txn((), (Put(*last_assignment(self.rng.sample(NODES, 2), None, "")),)))

    def now(self) -> float:
        return self.cluster.clock_ms / 1000

    async def pause(self, seconds: float) -> None:
        for _ in range(12):
            await self.some_turns()

    async def in_thread(self, work: Callable[[], bytes]) -> bytes:
        """In place of a thread, whose time would be that of the machine."""
        await self.pause(0)
        return work()

    # Checks.

    def check_removal(self, node: str, file: str) -> None:
        name = file.replace("@", "/")
        holder = self.nodes[node].holder if hasattr(self, "nodes") else None
        if holder is None or name.startswith("."):
            return
        self.removals += 1
        is_log = name not in holder.segment_store.held
        if not is_log:
            return
        for broker, replica in self.brokers.items():
            if node in replica.nodes_of(name) and node not in self.down and not self._has(node, name):
                raise Violation(f"{node} removes {name}, for which broker {broker} returns it")

    def _has(self, node: str, name: str) -> bool:
        try:
            return self.nodes[node].rows(name) >= 0
        except CountFailed:
            return False

    def check_announced(self) -> None:
        """Done by the counts."""

    async def count(self) -> None:
        broker = self.brokers[self.rng.choice(sorted(self.brokers))]
        client, before = BrokerClient(self, broker), dict(self.acknowledged)

        async def ask(node: str, segment: str) -> int:
            await self.some_turns()
            if node in self.down:
                raise CountFailed(node, "it is down")
            return self.nodes[node].rows(segment)

        try:
            found = await count_rows(
                lambda: lookup_all(client, SOURCE, "1970-01-01", "1970-01-02"),
                ask,
                attempts=6,
                rng=self.rng,
                pause=self.pause,
            )
        except SegmentsUnavailable as error:
            self.unavailable += 1
            self.counted = False
            if not self.troubles:
                raise Violation(f"UNAVAILABLE although every node is up: {error}") from error
            return
        self.counts += 1
        self.counted = True
        least, most = sum(before[name] for name in before if name in self.acknowledged), sum(self.sent.values())
        if not least <= found.rows <= most:
            raise Violation(f"{found.rows} rows counted at {found.revision}, of {least} to {most}: {found}")

    # Actions.

    async def open(self, node: IngestingNode) -> None:
        if len(self.sent) >= self.segments_max:
            return
        held = await node.ingester.open(SOURCE, DAY, COLUMNS, self.rng.randrange(1, 3))
        self.sent.setdefault(held.name, 0)
        self.acknowledged.setdefault(held.name, 0)

    async def append(self, node: IngestingNode) -> None:
        name = self._one_of(node)
        if name is None or name not in self.sent:
            return
        position, rows = node.ingester.held[name].log.rows, self.rng.randrange(1, 4)
        self.sent[name] = max(self.sent[name], position + rows)
        batch = [[position + number] for number in range(rows)]
        done = await node.ingester.append(name, batch, position)
        if name in self.acknowledged:
            self.acknowledged[name] = max(self.acknowledged[name], done)

    async def close(self, node: IngestingNode) -> None:
        if (name := self._one_of(node)) is not None and self.rng.random() < 0.3:
            await node.ingester.close_segment(name)

    async def lose(self) -> None:
        """An operator gives up a segment whose node is down, or has lost its lease and will return."""
        for name in sorted(self.sent):
            record = self.stored(name)
            if record is not None and grows(record) and not self._is_announced(record):
                client = BrokerClient(self, self.brokers["x"])
                rows = self.acknowledged.pop(name)
                try:
                    await give_up(client, record.segment, "ann", "its disk is lost", 1)
                except CatalogError:
                    self.acknowledged[name] = rows
                    raise
                self.given_up += 1
                return

    def _is_announced(self, record: SegmentRecord) -> bool:
        return record.segment.announcement_key(record.ingester) in self._before

    def _one_of(self, node: IngestingNode) -> str | None:
        names = sorted(name for name, held in node.ingester.held.items() if not held.log.closed)
        return self.rng.choice(names) if names else None

    def stored(self, name: str) -> SegmentRecord | None:
        key = ROOT + b"records/" + name.encode()
        return None if key not in self._before else SegmentRecord.from_bytes(key, self._before[key].value)

    def kill(self, name: str, tasks: dict[tuple[str, str], asyncio.Task[None]]) -> None:
        """Its lease ends some time later; its files lose what was not synced."""
        self.troubles += 1
        self.down.add(name)
        for (node, _), task in tasks.items():
            if node == name:
                task.cancel()
        self.nodes[name].dead = True
        self.nodes[name].listeners.all.clear()
        self.nodes[name].logs.crash(self.rng)

    async def restart(self, name: str) -> None:
        self.nodes[name] = node = IngestingNode(self, name, self.nodes[name])
        await node.start()
        self.down.discard(name)
        self.troubles += 1

    def move(self) -> None:
        """Assigns a published segment to other nodes."""
        names = [name for name in sorted(self.sent) if (r := self.stored(name)) is not None and not r.is_growing]
        if not names:
            return
        name = self.rng.choice(names)
        record = self.stored(name)
        assert record is not None
        nodes = set(self.rng.sample(NODES, record.replicas))
        wanted = Wanted(record.digest, record.size_bytes).to_value()
        now = {key for key in self._before if key.startswith(ASSIGNMENTS) and key.endswith(b"/" + name.encode())}
        keys = {assignment_key(each, name) for each in nodes}
        self.write(Txn((), (*(Put(key, wanted) for key in sorted(keys - now)), *map(DeleteRange, sorted(now - keys)))))
        self.moves += 1

    # The schedule.

    async def run(self, steps: int = 400, *, with_deaths: bool = True) -> None:  # type: ignore[override]
        self.deliver_all()
        for node in self.nodes.values():
            await node.start()
        tasks: dict[tuple[str, str], asyncio.Task[None]] = {}
        try:
            for _ in range(steps):
                await self.one_step(tasks, with_deaths)
                await self.some_turns()
                for key in [key for key, task in tasks.items() if task.done()]:
                    finished(tasks.pop(key))
            for task in tasks.values():
                while not task.done():
                    self.deliver_all()
                    await asyncio.sleep(0)
                finished(task)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)

    async def one_step(self, tasks: dict[tuple[str, str], asyncio.Task[None]], with_deaths: bool) -> None:
        name = self.rng.choice(NODES)
        node, lot = self.nodes[name], self.rng.random()
        if lot < 0.2:
            self.deliver(node.receive, node.replica.revision)
        elif lot < 0.45:
            broker = self.brokers[self.rng.choice(sorted(self.brokers))]
            self.deliver(broker.apply, broker.revision)
        elif lot < 0.52:
            self.begin(tasks, f"count {self.rng.randrange(3)}", "", self.count())
        elif lot < 0.54:
            self.move()
        elif lot < 0.55:
            self.disconnect(tasks)
        elif lot > 0.985 and with_deaths:
            await self.trouble(name, tasks)
        elif name not in self.down:
            kinds = ("settle", "announce", "renew", "hand off", "open", "append", "append", "append", "close")
            kind = self.rng.choice(kinds)
            work = getattr(self, kind)(node) if kind in ("open", "append", "close") else node.work(kind)
            self.begin(tasks, name, kind, work)

    def disconnect(self, tasks: dict[tuple[str, str], asyncio.Task[None]]) -> None:
        """A client closes its connection before its request is answered."""
        requests = [task for (_, what), task in tasks.items() if what in ("open", "append", "close")]
        if requests:
            self.rng.choice(requests).cancel()

    async def trouble(self, name: str, tasks: dict[tuple[str, str], asyncio.Task[None]]) -> None:
        if name in self.down:
            self.expire(name)
            if self.rng.random() < 0.3:
                self.begin(tasks, "operator", "lose", self.lose())
            else:
                await self.restart(name)
        elif self.rng.random() < 0.6:
            self.kill(name, tasks)
        else:
            self.troubles += 1
            self.expire(name)
            if self.rng.random() < 0.3:
                self.begin(tasks, "operator", "lose", self.lose())

    def begin(self, tasks: dict[tuple[str, str], asyncio.Task[None]], who: str, what: str, work: Any) -> None:
        if (who, what) in tasks:
            work.close()
        else:
            tasks[who, what] = asyncio.create_task(work)

    def receivers(self) -> Iterator[IngestingNode]:
        return (node for name, node in self.nodes.items() if name not in self.down)

    async def heal(self) -> None:
        """Every node returns, closes what it has, and everything is handed off and counted."""
        for name in sorted(self.down):
            await self.restart(name)
        self.cluster.wait(int(2_000 * FORGET_S))
        for _ in range(12):
            for node in self.nodes.values():
                await self.close_all(node)
                await self.finished(node.own.renew())
                await self.finished(node.announcer.announce())
                await self.finished(node.hand_off.work())
                await self.finished(node.holder._settle())
            self.deliver_all()
        await self.finished(self.count())
        if not self.counted:
            raise Violation("UNAVAILABLE although every node is up, and has its logs")

    async def close_all(self, node: IngestingNode) -> None:
        """Also those whose opening was completed after its client had disconnected."""
        for name, held in list(node.ingester.held.items()):
            if not held.log.closed:
                with contextlib.suppress(NoSuchSegment):
                    await self.finished(node.ingester.close_segment(name))


def finished(task: asyncio.Task[None]) -> None:
    """Refusals are part of the schedule; a violation ends it."""
    with contextlib.suppress(CatalogError, PalisadeError, OSError, asyncio.CancelledError):
        task.result()


__all__ = ["DAY", "IngestingNode", "RealtimeWorld", "Violation"]
