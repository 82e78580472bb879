"""A run of one scenario: its network, its nodes with readers beside their vaults, and its findings."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from tests.faults.mixed import MixedClients
from tests.faults.network import PORTS, Network
from tests.faults.rules import Rule
from tests.support.fence_history import violations
from tests.support.fencing_cluster import KEY, History, lease, make_strict, now, serving
from tests.support.node_log import faults_in
from tests.support.ordered_answers import Answer
from tests.support.processes import Cluster, FollowerProcess, NodeProcess, until

PROCEED_S = 3.31
"""T_proceed with the default times."""
STALL_S = PROCEED_S + 0.5
ELECTION_S = 1.5
KNOWN_S = 30.0
"""Results of reads are kept for this time."""
SETTLED_S = 40.0
"""Time after the last fault within which everything must have recovered."""


class GroundNode(NodeProcess):
    """A node on a host of its own, with the same name."""

    def __init__(self, network: Network, folder: Path, node: str, **options: str) -> None:
        super().__init__(folder, node, **options)
        self._listens, self._advertised = network.listens_on(node), network.advertised(node)
        self.http, self.peer, self.stream = (f"{self._advertised}:{PORTS[name]}" for name in ("http", "peer", "stream"))
        self.before_exec = network.enter(node)

    def command(self) -> list[str]:
        listening = [f"--{name}={self._listens}:{port}" for name, port in PORTS.items()]
        beyond = ["--insecure-listen", "--authorization=off", f"--advertise-host={self._advertised}"]
        return [*super().command(), *listening, *beyond]


class GroundFollower(GroundNode, FollowerProcess):
    def command(self) -> list[str]:
        given = [each for each in super().command() if not each.startswith(("--peer", "--stream"))]
        return [*given, f"--swim={self._listens}:{PORTS['peer']}"]


class GroundCluster(Cluster):
    def __init__(self, network: Network, folder: Path, size: int, followers: int, **options: str) -> None:
        self.folder, self.options = folder, options
        self.members: list[NodeProcess] = [
            GroundNode(network, folder, f"n{number}", **options) for number in range(1, size + 1)
        ]
        founders = ",".join(f"{node.id}={node.peer}:{PORTS['http']}:{PORTS['stream']}" for node in self.members)
        for node in self.members:
            node.options = options | {"initial_cluster": founders}
        self.followers_ = [
            GroundFollower(network, folder, f"f{number}", **options, join=self.members[0].http)
            for number in range(1, followers + 1)
        ]
        self.nodes = [*self.members, *self.followers_]

    @property
    def endpoints(self) -> list[str]:
        return [node.stream for node in self.members]

    async def followers(self) -> list[NodeProcess]:
        """Members that do not lead."""
        leader = await self.leader()
        return [node for node in self.members if node is not leader]


class GroundHistory(History):
    """A write without an acknowledgement may take effect late, after a later one of another node: so each takes effect
    only if a smaller value is stored. Every scenario reports stale reads at its end."""

    def __init__(self, ground: Ground, cluster: GroundCluster, writer: Callable[[], NodeProcess]) -> None:
        super().__init__(cluster, cluster.nodes, writer)
        self._ground = ground
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._writing = asyncio.Lock()
        self._newest: list[Answer] = []
        self._counted_to = 0.0

    async def __aexit__(self, *_: object) -> None:
        await self._end()
        self.check_so_far()

    def check_so_far(self) -> None:
        """Reports stale reads, and drops all results but those of the last `KNOWN_S` and the newest before: a read that
        takes longer than that might be stale without being detected."""
        reads = [each for node in self._nodes for each in self.reads(node)[0]]
        found = violations(reads, [*self._newest, *self.answered])
        errors = {word for node in self._nodes for _, word in self.reads(node)[1] if word.startswith("error")}
        seen, before = self._ground.seen, now() - KNOWN_S
        fresh = sum(each.ended >= self._counted_to for each in reads)
        written = sum(each.ended >= self._counted_to for each in self.answered)
        for name, count in (("reads", fresh), ("strict_writes", written), ("old_reads", len(found))):
            seen[name] = seen.get(name, 0) + count
        self._ground.violations += found[:5] + sorted(errors)
        self._counted_to = max((each.ended for each in [*reads, *self.answered]), default=0.0)
        passed = [each for each in [*reads, *self.answered, *self._newest] if each.ended < before]
        self._newest = [max(passed, key=lambda each: each.value)] if passed else []
        self.answered = [each for each in self.answered if each.ended >= before]
        for known in self._known.values():
            known.forget(before)

    @contextlib.asynccontextmanager
    async def reads_alone(self) -> AsyncIterator[None]:
        """No client writes meanwhile; pending requests have ended."""
        self._may_write.clear()
        async with self._writing:
            yield
        self._may_write.set()

    async def put(self, session: aiohttp.ClientSession, value: int) -> str | None:
        await self._may_write.wait()
        async with self._writing:
            return await self._put(session, value)

    async def _put(self, session: aiohttp.ClientSession, value: int) -> str | None:
        text = f"{value:08}"
        less = {"target": "value", "key": KEY, "relation": "<", "operand": text}
        body = {"compare": [less], "then": [{"put": {"key": KEY, "value": text}}]}
        try:
            async with session.post(f"http://{self._writer().http}/v1/txn", json=body) as answer:
                said = await answer.json(content_type=None)
                return None if answer.status == 200 and said["succeeded"] else str(said)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return repr(error)


@dataclass
class Pulse:
    """A strict write of a new key every `every_s`, concurrently: measures how long the cluster takes to respond at
    all."""

    through: Callable[[], NodeProcess]
    every_s: float = 0.1
    answered: list[tuple[float, float]] = field(default_factory=list)
    number: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> Pulse:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=8.0))
        self._tasks.add(asyncio.create_task(self._beat()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._session.close()

    async def _beat(self) -> None:
        while True:
            self.number += 1
            self._tasks.add(asyncio.create_task(self._write(f"/strict/pulse/{self.number}")))
            await asyncio.sleep(self.every_s)

    async def _write(self, key: str) -> None:
        began = now()
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            body = {"key": key, "value": "x"}
            async with self._session.post(f"http://{self.through().http}/v1/put", json=body) as answer:
                if answer.status == 200:
                    self.answered.append((began, now()))

    async def goes_on_after(self, moment: float, within_s: float) -> float:
        """Seconds from `moment` to the acknowledgement of the first write that was sent later."""

        def found() -> float | None:
            return min((ended - moment for began, ended in self.answered if began > moment), default=None)

        took: float = await until(found, f"a strict write that was sent after the fault (within {within_s} s)", 20)
        assert took <= within_s, f"strict writes went on after {took:.2f} s, {within_s:.2f} s are allowed"
        return took


class Ground:
    """`seconds`: duration of scenarios that run for a time; `times`: repetitions of scenarios that count. `seen`:
    findings for the report of the run."""

    def __init__(
        self, network: Network, folder: Path, seed: int, seconds: float, *, times: int = 1, plant: str | None = None
    ) -> None:
        self.network, self.folder, self.seed, self.plant = network, folder, seed, plant
        self.seconds, self.times = seconds, times
        self.chance = Random(seed)
        self.seen: dict[str, Any] = {"network": network.named}
        self.violations: list[str] = []
        """Violations reported by checkers."""
        self.log: list[str] = []
        self._began = now()
        self.clusters: list[GroundCluster] = []
        self._explained: list[tuple[NodeProcess, str]] = []
        self._is_whole = True
        self._held: Path | None = None
        """The file of the last history, if no violation was found."""

    def note(self, line: str) -> None:
        self.log.append(f"{now() - self._began:7.2f} s  {line}")
        print(self.log[-1], file=sys.stderr, flush=True)

    def explains(self, node: NodeProcess, *entries: str) -> None:
        """Log entries that the injected fault explains: patterns of whole entries without their time."""
        self._explained += [(node, each) for each in entries]

    def check_logs(self) -> None:
        """Reports nodes with unexplained errors in their logs, when all nodes have ended."""
        for node in (node for cluster in self.clusters for node in cluster.nodes if node.log_file.exists()):
            explained = [entry for of, entry in self._explained if of is node]
            found = faults_in(node.log_file.read_text(encoding="utf-8", errors="replace"), explained)
            self.violations += [f"{node.id} has logged a fault: {each}" for each in found[:5]]

    def cluster(self, size: int = 3, followers: int = 0, **options: str) -> GroundCluster:
        """Not started yet."""
        made = GroundCluster(self.network, self.folder, size, followers, **options)
        if self.plant is not None:
            for node in made.nodes:
                node.program = ["-m", "tests.support.planted_fence", self.plant, "palisade.cli"]
        self.clusters.append(made)
        return made

    async def serving(self, size: int = 3, followers: int = 0, **options: str) -> GroundCluster:
        """Every node serves fenced reads, and `/strict/` is strict."""
        cluster = self.cluster(size, followers, **options)
        cluster.start()
        await cluster.ready()
        await serving(cluster.nodes)
        await make_strict(cluster.members[0])
        await cluster.members[0].put(KEY, f"{0:08}")
        self.note(f"{', '.join(node.id for node in cluster.nodes)} serve, {(await cluster.leader()).id} leads")
        return cluster

    def history(self, cluster: GroundCluster, writer: Callable[[], NodeProcess]) -> GroundHistory:
        return GroundHistory(self, cluster, writer)

    def become(self, *rules: Rule) -> float:
        """These rules apply from the returned moment on."""
        self.network.become(rules)
        self._is_whole = not rules
        self.note("the network: " + ("; ".join(str(rule.shown()) for rule in rules) or "as it should be"))
        return now()

    @contextlib.asynccontextmanager
    async def mixed(
        self,
        cluster: GroundCluster,
        name: str = "mixed",
        pause_s: float = 0.01,
        *,
        members: Sequence[NodeProcess] | None = None,
    ) -> AsyncIterator[MixedClients]:
        """Runs clients of every kind meanwhile; at the end reports clients that missed changes (unless links are still
        broken), and violations in their history. The history of the last run, and each one with violations, is kept as
        a file. `members`: those that stay; of the other nodes only the vaults are read."""
        clients = MixedClients(members or cluster.members, self.chance, name, pause_s=pause_s, vaults=cluster.nodes)
        try:
            async with clients:
                yield clients
                if self._is_whole:
                    await clients.hear_everything()
        finally:
            await self._judge(clients)

    async def _judge(self, clients: MixedClients) -> None:
        file = self.folder / f"history-{clients.name}.jsonl"
        found = await asyncio.to_thread(clients.violations, file)
        if self._held is not None:
            self._held.unlink()
        self._held = None if found else file
        self.violations += found
        self.seen["history"] = str(file)
        for what, count in clients.counts().items():
            self.seen[what] = self.seen.get(what, 0) + count
        if clients.reported_s is not None:
            self.seen["reported_s"] = max(self.seen.get("reported_s", 0.0), clients.reported_s)

    async def fenced(self, history: History, node: NodeProcess, since: float) -> None:
        """Its lease expires. A node with a planted fault need not be fenced: the checker has to detect that."""

        def is_fenced() -> bool:
            long_enough = self.plant is not None and now() > since + 2 * STALL_S
            return long_enough or any(word == "fenced" and at > since for at, word in reversed(history.reads(node)[1]))

        await until(is_fenced, f"the readers of {node.id} being fenced")

    async def heals(self, nodes: Sequence[NodeProcess]) -> None:
        """All faults are removed: every node serves again in time."""
        began = self.become()
        await until(lambda: all_serve(nodes), "every node serving again", SETTLED_S)
        self.note(f"every node serves {now() - began:.2f} s later")

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.kill()
        self.network.close()


async def all_serve(nodes: Iterable[NodeProcess]) -> bool:
    return all([(await lease(node)).get("serves") for node in nodes])


def values_of(history: History, node: NodeProcess, since: float) -> list[Answer]:
    """The values that its readers got after that moment."""
    reads = history.reads(node)[0]
    return reads[bisect_right(reads, since, key=lambda each: each.began) :]
