"""Real `palisade node` processes on loopback, each with its own folder, started and stopped by their process ids.

No fixed delays: `until` waits for a condition and fails if it does not hold in time.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from palisade.wire.credentials import Credentials, header_of
from tests.faults import kernel
from tests.support.preloaded import PROGRAM, Preloaded

LONGEST_WAIT_S = 30.0
FORKED = (
    PROGRAM, "palisade.cli.scenarios.staged_node", "palisade.cli.scenarios.staged_copy",
    "tests.support.planted_fence", "tests.support.planted_ingester", "tests.support.slow_disk_node",
)  # fmt: skip
"""Programs that work in a process that has imported the product already."""
WORKERS = 8
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_given_ports: set[int] = set()


def free_port() -> int:
    """A port below the ephemeral range of the system, so that it stays free over restarts; and one that no other
    process of the same test run hands out (`scripts/test` has two)."""
    while True:
        port = random.randrange(10_000 + WORKER % WORKERS, 20_000, WORKERS)
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie. It may end between two looks, also while its state is read."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


async def until(
    holds: Callable[[], Awaitable[Any] | Any], what: str = "the condition", within_s: float = LONGEST_WAIT_S
) -> Any:
    """The result of `holds()` (awaited if necessary) once it is true. Fails naming `what` if it is not in time."""
    last: Any = None
    try:
        async with asyncio.timeout(within_s):
            while not (last := await _value(holds())):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"{what} did not come within {within_s} s; last seen: {last!r}") from None
    return last


async def _value(found: Awaitable[Any] | Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def palisade(*arguments: str, environment: Mapping[str, str] = os.environ) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of one command."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = Preloaded(arguments, out.fileno(), err.fileno(), environment)
        try:
            await until_ended(process)
        finally:
            process.kill()
        code = process.wait()
        return code or 0, *(file.seek(0) or file.read().decode() for file in (out, err))


async def palisade_json(*arguments: str) -> dict[str, Any]:
    """The output of a command that must succeed."""
    code, out, err = await palisade(*arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


async def exposition_at(address: str, credentials: Credentials | None = None) -> str:
    """What Prometheus reads of a node or another process with `/metrics`."""
    async with (
        aiohttp.ClientSession(f"http://{address}", headers=header_of(credentials)) as http,
        http.get("/metrics") as answer,
    ):
        text = await answer.text()
        assert answer.status == 200, text
        return text


async def metrics_at(address: str) -> dict[str, float]:
    """By name with labels."""
    lines = (await exposition_at(address)).splitlines()
    samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in samples}


async def until_ended(process: Preloaded) -> None:
    """However long it takes; the event loop continues meanwhile."""
    ended, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.add_reader(process, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(process)


class NodeProcess:
    """One member. `options` are those of `palisade node` beside the addresses; they may change between starts."""

    def __init__(self, folder: Path, node: str, *, cluster: str = "e2e", **options: str) -> None:
        self.id = node
        self.data_dir = folder / node
        self.log_file = folder / f"{node}.log"
        self.http, self.peer, self.stream = (f"127.0.0.1:{free_port()}" for _ in range(3))
        self.cluster = cluster
        self.options = options
        self.program = ["-m", PROGRAM]
        self.before_exec: Callable[[], None] | None = None
        """Called in the new process before the program starts, to limit it."""
        self._process: subprocess.Popen[bytes] | Preloaded | None = None
        self._log_began = 0

    def command(self) -> list[str]:
        given = {"id": self.id, "cluster": self.cluster, "data-dir": str(self.data_dir)}
        given |= {"http": self.http, "peer": self.peer, "stream": self.stream}
        given |= {name.replace("_", "-"): value for name, value in self.options.items()}
        return [sys.executable, *self.program, "node", *(f"--{name}={value}" for name, value in given.items())]

    def start(self) -> None:
        if self.running:
            raise RuntimeError(f"{self.id} runs already")
        with self.log_file.open("ab") as log:
            self._log_began = log.tell()
            self._process = self._begin(self.command(), log.fileno())

    def _begin(self, command: list[str], log: int) -> subprocess.Popen[bytes] | Preloaded:
        """Without importing the program again, unless `before_exec` or `program` requires an `exec`."""
        entering = self.before_exec or kernel.Entering()
        if isinstance(entering, kernel.Entering) and command[1] == "-m" and command[2] in FORKED:
            return Preloaded(command[3:], log, log, network=entering.network, module=command[2])
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, preexec_fn=self._prepare)

    def _prepare(self) -> None:
        """If the run is killed, even by SIGKILL, its nodes end, too."""
        kernel.die_with_parent()
        if self.before_exec is not None:
            self.before_exec()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.id} was never started")
        return self._process.pid

    def log(self) -> str:
        """The log of the last started process."""
        return self.log_file.read_bytes()[self._log_began :].decode(errors="replace")

    def kill(self) -> None:
        """kill -9; returns when the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def interrupt(self, number: int = signal.SIGTERM) -> None:
        os.kill(self.pid, number)

    def pause(self) -> None:
        self.interrupt(signal.SIGSTOP)

    def resume(self) -> None:
        self.interrupt(signal.SIGCONT)

    async def ended(self, within_s: float = LONGEST_WAIT_S) -> int:
        """The exit code of the process, which must end by itself; negative for a signal."""
        await until(lambda: not self.running, f"the end of {self.id}", within_s)
        assert self._process is not None
        return self._process.returncode

    async def stop(self, within_s: float = LONGEST_WAIT_S) -> int:
        """By SIGTERM. Returns the exit code."""
        self.interrupt()
        return await self.ended(within_s)

    async def logged(self, text: str, within_s: float = LONGEST_WAIT_S) -> None:
        await until(lambda: text in self.log(), f"{text!r} in the log of {self.id}", within_s)

    # Requests. All of these return None if no node responds.

    async def get(self, path: str, timeout_s: float = 10.0) -> dict[str, Any] | None:
        return await self.ask("GET", path, timeout_s=timeout_s)

    async def put(self, key: str, value: str) -> dict[str, Any] | None:
        return await self.ask("POST", "/v1/put", {"key": key, "value": value})

    async def ask(self, method: str, path: str, body: Any = None, timeout_s: float = 10.0) -> dict[str, Any] | None:
        """The response, with its status code as 'http_status'."""
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.request(method, f"http://{self.http}{path}", json=body) as response,
            ):
                answer: Any = await response.json(content_type=None)
                return {**answer, "http_status": response.status}
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    async def ready(self) -> bool:
        answer = await self.get("/readyz", timeout_s=2)
        return answer is not None and answer["http_status"] == 200

    async def status(self) -> dict[str, Any]:
        answer = await self.get("/v1/status", timeout_s=2)
        return answer if answer is not None else {}


class FollowerProcess(NodeProcess):
    """A follower: `join` or `seeds` among its options name the cluster."""

    def command(self) -> list[str]:
        given = [each for each in super().command() if not each.startswith(("--peer", "--stream"))]
        return [*given, "--follow"]


class Cluster:
    """Nodes n1, n2, ... that are founded together; further ones `join`. `options` go to every node."""

    def __init__(self, folder: Path, size: int = 3, **options: str) -> None:
        self.folder = folder
        self.options = options
        self.nodes = [NodeProcess(folder, f"n{number}", **options) for number in range(1, size + 1)]
        addresses = [(node, [each.rpartition(":")[2] for each in (node.http, node.stream)]) for node in self.nodes]
        founders = ",".join(f"{node.id}={node.peer}:{':'.join(ports)}" for node, ports in addresses)
        for node in self.nodes:
            node.options = options | {"initial_cluster": founders}

    def __getitem__(self, node: str) -> NodeProcess:
        return next(each for each in self.nodes if each.id == node)

    @property
    def running(self) -> list[NodeProcess]:
        return [node for node in self.nodes if node.running]

    @property
    def endpoints(self) -> list[str]:
        return [node.stream for node in self.nodes]

    def joining(self, node: str, at: NodeProcess, **options: str) -> NodeProcess:
        """A new member (or the new storage of an old one) that joins through `at`; not started yet."""
        known = [each for each in self.nodes if each.id == node]
        joins = known[0] if known else NodeProcess(self.folder, node)
        joins.options = self.options | options | {"join": at.http}
        if not known:
            self.nodes.append(joins)
        return joins

    def start(self) -> None:
        for node in self.nodes:
            if not node.running:
                node.start()

    async def ready(self, nodes: Iterable[NodeProcess] | None = None, within_s: float = LONGEST_WAIT_S) -> None:
        """Wait until every node (that runs) knows a leader and has caught up."""
        for node in list(nodes) if nodes is not None else self.running:
            await until(node.ready, f"{node.id} being ready (its log ends with: {node.log()[-1500:]})", within_s)

    async def remove(self, node: NodeProcess) -> None:
        """From the group and from here; its process ends."""
        code, _, said = await palisade("member", "remove", node.id, "--endpoints", ",".join(self.endpoints))
        assert code == 0, said
        self.nodes.remove(node)
        node.kill()

    async def leader(self, among: Iterable[NodeProcess] | None = None, within_s: float = LONGEST_WAIT_S) -> NodeProcess:
        """The node that leads according to its own status."""
        asked = list(among) if among is not None else None

        async def leading() -> NodeProcess | None:
            for node in asked if asked is not None else self.running:
                if (await node.status()).get("role") == "leader":
                    return node
            return None

        found: NodeProcess = await until(leading, "a leader", within_s)
        return found

    async def followers(self) -> list[NodeProcess]:
        leader = await self.leader()
        return [node for node in self.running if node is not leader]

    async def equal_digests(self, nodes: Iterable[NodeProcess] | None = None) -> dict[str, Any]:
        """The digest of all (running) nodes at one revision. Fails if they differ at one revision."""
        asked = list(nodes) if nodes is not None else self.running

        async def same_revision() -> list[dict[str, Any]] | None:
            digests = [await node.get("/v1/digest") for node in asked]
            found = [digest for digest in digests if digest is not None and digest["http_status"] == 200]
            return found if len(found) == len(asked) and len({each["revision"] for each in found}) == 1 else None

        digests: list[dict[str, Any]] = await until(same_revision, "digests at one revision")
        for node, digest in zip(asked, digests, strict=True):
            wrong = {name: (value, digests[0][name]) for name, value in digest.items() if value != digests[0][name]}
            shown = {name: "..." if name == "buckets" else pair for name, pair in wrong.items()}
            assert not wrong, f"{node.id} differs from {asked[0].id} at revision {digest['revision']}: {shown}"
        return digests[0]

    def kill(self) -> None:
        """Every process that still runs, also if it is paused."""
        for node in self.running:
            node.kill()
