"""Walks of a wired cluster: clients, readers of each vault, and faults; and the check of all results.

All writes of a key are ordered by their revisions. So the history of a key is linearizable if no result is older than
one that was returned, or acknowledged, before the request began, and none was uncommitted when it ended. An absent key
may have been deleted by several deletes: the oldest possible one is assumed.

`python -m tests.support.wired_walk FIRST COUNT` continues the walks.
"""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_right
from typing import Any

from palisade.metastore.requests import Command, DeleteRange, Put, Range, Txn
from palisade.raftgroup.errors import RaftError, Unavailable
from palisade.service import strict_changes as strict_log
from palisade.service.callers import THIS_NODE, UNRESTRICTED
from palisade.vault.change import item_of, key_of
from palisade.vault.errors import ReadRefused
from palisade.vault.reader import VaultReader
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from palisade.wire.fencing_errors import ReleaseError
from tests.support.simulation import Process
from tests.support.wired_parts import DEADLINE_S, TIMING, Entry
from tests.support.wired_world import Cluster, Node

KEYS = (b"t/a", b"t/b", b"s/a", b"s/b", b"e/a")
TOGGLED = region_key("s")
SETTLE_S = 4.0


class Violation(AssertionError):
    """A client or reader got a result that must not occur."""


class History:
    """Of all keys, as committed; `floor`: the oldest acceptable version of each key for the next request."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self.versions: dict[bytes, list[tuple[int, bool]]] = {}
        self.revision = 1
        self.floor: dict[bytes, int] = {}
        self.checked = {"write": 0, "read": 0, "fenced": 0}
        self.refused = 0

    def committed(self, node: Node) -> None:
        """The first node has applied it."""
        store = node.store
        while store.revision > self.revision:
            for revision in store.feed.changes(self.revision + 1, store.revision, 1 << 20):
                for body in revision.bodies:
                    item = item_of(body)
                    self.versions.setdefault(key_of(body), []).append((revision.number, bool(item.version)))
                self.revision = revision.number

    def version_at(self, key: bytes, revision: int) -> int:
        versions = self.versions.get(key, [])
        place = bisect_right(versions, (revision, True))
        return versions[place - 1][0] if place else 0

    def latest(self, key: bytes) -> int:
        return self.version_at(key, self.revision)

    def wrote(self, key: bytes, revision: int) -> None:
        self.checked["write"] += 1
        self._known(key, self.version_at(key, revision))

    def _known(self, key: bytes, version: int) -> None:
        self.floor[key] = max(self.floor.get(key, 0), version)

    def record(self, kind: str, who: str, key: bytes, version: int | None, floor: int) -> None:
        """`version`: None if the key was reported as absent."""
        self.checked[kind] += 1
        if version is None:
            gone = [0, *(revision for revision, present in self.versions.get(key, []) if not present)]
            fitting = [revision for revision in gone if revision >= floor]
            if not fitting:
                self._fail(f"{kind} at {who}: {key!r} is absent, and {floor} was known before")
            version = fitting[0]
        if version < floor:
            self._fail(f"{kind} at {who}: {key!r} is returned as of {version}, and {floor} was known before")
        if version and version != self.version_at(key, version):
            self._fail(f"{kind} at {who}: {key!r} was never written at {version}")
        self._known(key, version)

    def _fail(self, text: str) -> None:
        raise Violation(f"seed {self._seed}: {text}")


class Walk:
    def __init__(self, seed: int, *, calm: bool = False, node_class: type[Node] = Node) -> None:
        self.seed, self.calm = seed, calm
        self.cluster = Cluster(seed, calm=calm, node_class=node_class)
        self.simulation, self.random = self.cluster.simulation, self.cluster.random
        self.history = History(seed)
        self.cluster.on_applied = self._applied
        self.simulation.after_turn = self._after_turn
        self.strict_since = 0
        """The revision at which s/ became strict, once that was acknowledged; 0 while it may not be strict."""
        self.quiet = False
        self.resumed = dict.fromkeys(self.cluster.names, 0.0)
        self.seen: dict[tuple[int, str], int] = {}
        self.longest_wait = 0.0
        self.served: set[str] = set()

    # Checks

    def _applied(self, node: Node, entry: Entry) -> None:
        self.history.committed(node)

    def _after_turn(self, process: Process) -> None:
        node = self.cluster.nodes.get(process.name)
        if node is None or node.process is not process:
            return
        self._never_back(node)
        core, now = node.fencing.grantor.core, process.now()
        if core.leads and core._waiting and self.cluster.now > self.resumed[node.name] + 0.2:
            waits = now - core._waiting[0].at
            self.longest_wait = max(self.longest_wait, waits)
            if waits > TIMING.proceed_s() + 0.1:
                raise Violation(f"seed {self.seed}: {node.name} waits for {waits:.3f} s: {core.waits(now)[:1]}")
        if self.calm:
            self._serves_on(node)

    def _serves_on(self, node: Node) -> None:
        if node.holder.serves:
            self.served.add(node.name)
        elif node.name in self.served:
            raise Violation(f"seed {self.seed}: {node.name} is fenced, without need: {node.holder.why}")

    def _never_back(self, node: Node) -> None:
        page, log = node.vault.page, node.fencing.log
        assert page is not None
        facts = {"page": page.fence.released, "vault": node.vault.staging.released, "log": log.released or 0}
        for name, value in (facts | {"point": log.point}).items():
            if value < self.seen.get((id(node), name), 0):
                raise Violation(f"seed {self.seed}: {name} of {node.name} went back to {value}")
            self.seen[id(node), name] = value
        if page.fence.released > self.history.revision:
            raise Violation(f"seed {self.seed}: {node.name} shows what is not committed")

    # Clients

    async def _client(self, name: str) -> None:
        while not self.quiet:
            await asyncio.sleep(self.random.random() * (0.03 if self.calm else 0.08))
            chance = self.random.random()
            if chance < 0.35:
                await self._read(name)
            elif chance < 0.5:
                await asyncio.gather(*(self._write(name) for _ in range(self.random.randint(2, 4))))
            else:
                await self._write(name)

    def _some_write(self) -> tuple[Command, list[bytes]]:
        key, chance = self.random.choice(KEYS), self.random.random()
        if chance < 0.15:
            return DeleteRange(key), [key]
        if chance < 0.2:
            return DeleteRange(key[:2], key[:1] + b"0"), [each for each in KEYS if each[:2] == key[:2]]
        if chance < 0.35:
            other = self.random.choice([each for each in KEYS if each != key])
            return Txn(success=(Put(key, b"v"), Put(other, b"v"))), [key, other]
        return Put(key, b"v"), [key]

    async def _write(self, name: str) -> None:
        request, keys = self._some_write()
        service = self.cluster.nodes[name].key_values
        try:
            result = await service.write(request, caller=THIS_NODE)
        except (RaftError, ReleaseError):
            return
        for key in keys:
            self.history.wrote(key, result.revision)

    async def _read(self, name: str) -> None:
        """A linearizable one at a member: of a key, or of all."""
        service, history = self.cluster.nodes[name].key_values, self.history
        keys = [self.random.choice(KEYS)] if self.random.random() < 0.7 else list(KEYS)
        floors = {key: history.floor.get(key, 0) for key in keys}
        request = Range(keys[0]) if len(keys) == 1 else Range(b"e", b"u")
        try:
            found = {kv.key: kv.mod_revision for kv in (await service.range(request, caller=UNRESTRICTED)).kvs}
        except (RaftError, ReleaseError):
            return
        for key in keys:
            history.record("read", name, key, found.get(key), floors[key])

    def _is_strict(self, key: bytes) -> bool:
        if key.startswith(b"s/"):
            return bool(self.strict_since) and self.history.latest(TOGGLED) == self.strict_since
        return key.startswith(b"t/")

    async def _reader(self, name: str) -> None:
        """A separate process beside the node's vault, with the clock of that machine."""
        clock_ns = lambda: int(self.cluster.nodes[name].process.now() * 1e9)  # noqa: E731
        reader = VaultReader.over(self.cluster.nodes[name].vault, clock_ns=clock_ns, wait_s=0.3)
        while True:
            await asyncio.sleep(self.random.random() * 0.02)
            key = self.random.choice(KEYS[:4])
            since, strict, floor = self.strict_since, self._is_strict(key), self.history.floor.get(key, 0)
            try:
                item = await reader.get_item_async(key)
            except ReadRefused:
                self.history.refused += 1
                continue
            if strict and self._is_strict(key) and since == self.strict_since:
                self.history.record("fenced", name, key, None if item is None else item.mod_revision, floor)

    async def _regions(self) -> None:
        while not self.quiet:
            await asyncio.sleep(self.random.random() * 0.4)
            name = self.random.choice(self.cluster.names)
            kind = self.random.choice((Mode.STRICT, Mode.STRICT, Mode.EVENTUAL, None))
            self.strict_since = 0
            region = Region("s", b"s/", kind or Mode.STRICT, Policy.FAIL_CLOSED)
            request = Put(TOGGLED, pack_region(region)) if kind is not None else DeleteRange(TOGGLED)
            try:
                result = await self._in_node(name, request)
            except (RaftError, ReleaseError):
                continue
            if kind is Mode.STRICT:
                self.strict_since = result.revision

    # Faults

    async def _flushes(self) -> None:
        while True:
            await asyncio.sleep(self.random.random() * 0.3)
            for node in self.cluster.nodes.values():
                if self.random.random() < 0.5:
                    node.process.call(node.flush)

    async def _nemesis(self) -> None:
        cluster = self.cluster
        acts = [self._pause, self._cut, self._break, self._elect, self._restart, self._drop, self._recover, self._stop]
        while not self.quiet:
            await asyncio.sleep(self.random.random() * 0.5)
            name = self.random.choice(cluster.names)
            if not cluster.nodes[name].stopped:
                self.random.choice(acts)(name)

    def _pause(self, name: str) -> None:
        node = self.cluster.nodes[name]
        node.process.pause()
        self.simulation.after(self.random.random() * 1.2, lambda: self._resume(node))

    def _resume(self, node: Node) -> None:
        node.process.resume()
        self.resumed[node.name] = self.cluster.now

    def _cut(self, name: str) -> None:
        self.cluster.cut.add(name)
        self.simulation.after(self.random.random() * 1.2, lambda: self.cluster.cut.discard(name))

    def _break(self, name: str) -> None:
        for visit in list(self.cluster.visits):
            if self.random.random() < 0.5:
                visit.close()

    def _elect(self, name: str) -> None:
        def until_it_leads(tries: int) -> None:
            if self.cluster.leader != name and tries:
                self.cluster.elect(name)
                self.simulation.after(0.1, lambda: until_it_leads(tries - 1))

        leader = self.cluster.leader
        if leader is not None and leader != name and self.random.random() < 0.7:
            self._cut(leader)
        until_it_leads(8)

    def _restart(self, name: str) -> None:
        self.cluster.restart(name)
        self.resumed[name] = self.cluster.now

    def _drop(self, name: str) -> None:
        """Out of the topology, and in again."""
        node = self.cluster.nodes[name]
        if not node.incarnation:
            return
        self.cluster.incarnations[name] = 0

        def again() -> None:
            if self.cluster.nodes[name] is node and not node.stopped:
                node.incarnation = self.cluster.let_in(name)

        def heard() -> None:
            node.incarnation = 0

        self.simulation.after(self.random.random() * 0.5, heard)
        self.simulation.after(0.5 + self.random.random(), again)

    def _recover(self, name: str) -> None:
        node = self.cluster.nodes[name]
        again = getattr(node, "recover_now", None)
        if again is not None:
            node.process.call(again.set)

    def _stop(self, name: str) -> None:
        node = self.cluster.nodes[name]
        if not node.incarnation or node.process.paused:
            return
        node.stopped = True

        async def stop() -> None:
            await node.part.stop()
            await node.part.unlink()
            if not node.process.dead:
                self.simulation.after(self.random.random() * 0.5, lambda: self._restart(name))

        node.process.start(stop())

    # A walk

    def run(self, seconds: float) -> History:
        try:
            self._run(seconds)
        finally:
            self.simulation.close()
        return self.history

    def _run(self, seconds: float) -> None:
        cluster, simulation = self.cluster, self.simulation
        simulation.run_until(lambda: all(node.holder.serves for node in cluster.nodes.values()), within_s=20)
        world = simulation.process("world")
        region = Region("t", b"t/", Mode.STRICT, Policy.FAIL_CLOSED)
        simulation.run(world, self._in_node("n1", Put(region_key("t"), pack_region(region))), within_s=20)
        for node in cluster.nodes.values():
            self._booted(node)
        cluster.on_booted = self._booted
        tasks = [world.start(self._reader(name)) for name in cluster.names]
        tasks += [world.start(self._regions()), world.start(self._flushes())]
        if not self.calm:
            tasks.append(world.start(self._nemesis()))
        end = simulation.now + seconds
        while simulation.now < end:
            simulation.run_for(0.25)
            self._look(tasks)
        self.quiet = True
        self._heal()
        simulation.run_for(2.5)
        self._heal()
        simulation.run_for(SETTLE_S)
        self._look(tasks)
        self._is_settled()

    def _booted(self, node: Node) -> None:
        """Its clients run in its process: they end with it."""
        for _ in range(2):
            self.cluster.watched.append((node, node.process.start(self._client(node.name))))

    async def _in_node(self, name: str, request: Command) -> Any:
        """A request from outside. Raises Unavailable if the node does not respond."""
        node, loop = self.cluster.nodes[name], asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        async def ask() -> None:
            try:
                outcome = await node.key_values.write(request, caller=THIS_NODE)
                if isinstance(request, Put | DeleteRange) and request.key == TOGGLED:
                    await node.key_values.all_released()
            except (RaftError, ReleaseError) as error:
                outcome = error
            if not answer.done():
                loop.call_soon(answer.set_result, outcome)

        node.process.call(lambda: node.process.start(ask()))
        try:
            outcome = await asyncio.wait_for(answer, 2 * DEADLINE_S)
        except TimeoutError:
            raise Unavailable("the node does not answer") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _look(self, tasks: list[asyncio.Task[Any]]) -> None:
        self.cluster.check()
        for task in tasks:
            if task.done() and task.exception() is not None:
                error = task.exception()
                assert error is not None
                raise error
        for name, node in self.cluster.nodes.items():
            if node.process.dead:
                raise AssertionError(f"{name} is dead")

    def _heal(self) -> None:
        self.cluster.cut.clear()
        for node in self.cluster.nodes.values():
            node.process.resume()
        if self.cluster.leader is None or not self.cluster.nodes[self.cluster.leader].group.leads:
            free = next(name for name in self.cluster.names if self.cluster.may_lead(name))
            self.cluster.leader = None
            self.cluster.elect(free)

    def _is_settled(self) -> None:
        """Without faults every change is released, and every node serves."""
        for name, node in self.cluster.nodes.items():
            state = f"{node.holder.core.state}, {node.holder.why}, LV {node.vault.revision} of {self.history.revision}"
            if not node.holder.serves:
                raise Violation(f"seed {self.seed}: {name} does not serve at the end: {state}")
            if not node.fencing.log.settled or len(node.fencing.released):
                raise Violation(f"seed {self.seed}: answers wait at {name} at the end: {state}")


def walk(seed: int, seconds: float = 12.0, *, calm: bool = False, node_class: type[Node] = Node) -> Walk:
    kept = strict_log.KEPT_CHANGES_MAX
    strict_log.KEPT_CHANGES_MAX = 25 if seed % 5 == 4 and not calm else kept
    try:
        made = Walk(seed, calm=calm, node_class=node_class)
        made.run(seconds)
    finally:
        strict_log.KEPT_CHANGES_MAX = kept
    return made


def main(first: int, count: int, calm: bool) -> None:
    for seed in range(first, first + count):
        began = time.process_time()
        try:
            made = walk(seed, calm=calm)
        except Exception as error:
            print(f"seed {seed}: {type(error).__name__}: {error} {error.__cause__!r}", flush=True)
            continue
        spent = time.process_time() - began
        outcome = f"{made.history.checked}, refused {made.history.refused}"
        print(f"seed {seed}: {outcome}, longest wait {made.longest_wait:.2f}, {spent:.1f} s", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), "calm" in sys.argv)
