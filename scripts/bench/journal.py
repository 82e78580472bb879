"""A replicated journal: acknowledged entries per second, the time of one entry, and the time of a failover (issue 17).

    scripts/bench/run journal [--rounds N] [--seconds N] [--data-dir D] [--keep D] [--no-keep]

batches  One client, batches of 100 entries of 100 bytes, 16 in flight; both copies fsynced.
one      One entry at a time, p50, against a bare relay (`harness/relay.py`: client -> A -> B, append and fdatasync on
         both, on the same disk).
failover From kill -9 of the active copy to the next acknowledged entry; then the same with kill -9 of the leader of the
         cluster in the same moment.

Medians of the rounds count. Exit codes: 0 every threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from harness import relay
from harness.figures import Line, Threshold, all_pass, alone, medians
from harness.palisade import Palisade
from harness.process import Process, ProcessEnded
from harness.report import KEPT, ToolMissing, keep, need, show, surroundings
from harness.system import NotReady, free_base_port
from palisade.base.code_root import CODE_ROOT
from palisade.fencing.timing import FenceTiming
from palisade.journal.client import JournalClient
from palisade.journal.errors import AppendUnknown, NotActive
from palisade.node.config import TimingConfig

ROLE = "bench"
ENTRY = b"x" * relay.SIZE
BATCH, IN_FLIGHT = 100, 16
READY_S = 20.0
ENTRIES, ONE_P50_MS, RELAY_P50_MS, FAILOVER_S = "entries_per_s", "one_p50_ms", "relay_p50_ms", "failover_s"
WITH_LEADER_S = "failover_with_leader_s"
ENTRIES_WANTED = Threshold(at_least=20_000)
TIMES_RELAY = Threshold(at_most=1.5)
FAILOVER_WANTED = Threshold(at_most=3.0)
WITH_LEADER_WANTED = Threshold(at_most=FenceTiming().proceed_s() + TimingConfig().election_max_ms / 1000 + 2.0)


class Pair:
    """Two copies, `a` the configured primary."""

    def __init__(self, folder: Path, cluster: Palisade) -> None:
        self.cluster = cluster
        base = free_base_port([0, 1])
        self.addresses = [f"127.0.0.1:{base}", f"127.0.0.1:{base + 1}"]
        self.processes = []
        for name, kind, address in zip("ab", ("primary", "backup"), self.addresses, strict=True):
            program = [
                sys.executable, "-P", "-m", "palisade.cli", "journal", "serve", "--role", ROLE, "--name", name,
                "--dir", str(folder / name), "--listen", address, f"--{kind}", "--endpoints", ",".join(cluster.streams),
            ]  # fmt: skip
            environment = {"PYTHONPATH": str(CODE_ROOT)}
            self.processes.append(Process(f"copy {name}", program, folder / f"{name}.log", environment))

    async def start(self) -> None:
        for process in self.processes:
            await process.start()
        await self.reach("active", "in sync")

    async def reach(self, *states: str) -> None:
        async with JournalClient(ROLE, self.addresses) as client, asyncio.timeout(READY_S):
            while [copy["state"] for copy in await client.status()] != list(states):  # noqa: ASYNC110
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        for process in self.processes:
            await process.kill()


@asynccontextmanager
async def running_pair(folder: Path) -> AsyncIterator[Pair]:
    async with Palisade(folder / "palisade") as cluster:
        pair = Pair(folder, cluster)
        try:
            await pair.start()
            yield pair
        finally:
            await pair.stop()


async def batched(client: JournalClient, seconds: float) -> float:
    """Acknowledged entries per second."""
    count, until = 0, time.perf_counter() + seconds

    async def run() -> None:
        nonlocal count
        while time.perf_counter() < until:
            await client.append_many([ENTRY] * BATCH)
            count += BATCH

    began = time.perf_counter()
    await asyncio.gather(*(run() for _ in range(IN_FLIGHT)))
    return count / (time.perf_counter() - began)


async def one_at_a_time(client: JournalClient, seconds: float) -> float:
    """p50 in ms."""
    times, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        await client.append(ENTRY)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


async def relayed(folder: Path, seconds: float) -> float:
    """p50 of the bare relay, in ms."""
    base, program = free_base_port([0, 1]), [sys.executable, relay.__file__]
    b = Process("relay b", [*program, str(base + 1), str(folder / "relay-b")], folder / "relay-b.log", {})
    a = Process("relay a", [*program, str(base), str(folder / "relay-a"), str(base + 1)], folder / "relay-a.log", {})
    try:
        await b.start()
        await until_listening(base + 1)
        await a.start()
        await until_listening(base)
        return await asyncio.to_thread(ask_relay, base, seconds)
    finally:
        await a.kill()
        await b.kill()


def ask_relay(port: int, seconds: float) -> float:
    times, until = [], time.perf_counter() + seconds
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while time.perf_counter() < until:
            began = time.perf_counter()
            connection.sendall(ENTRY)
            relay.received(connection, 1)
            times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


async def until_listening(port: int) -> None:
    """Without a connection, which the relay would take for its client: until the port can't be bound."""
    async with asyncio.timeout(READY_S):
        while True:
            with socket.socket() as probe:
                try:
                    probe.bind(("127.0.0.1", port))
                except OSError:
                    return
            await asyncio.sleep(0.05)


async def failover(pair: Pair, client: JournalClient) -> float:
    """Seconds from kill -9 of copy a, which is active, to the next acknowledged entry."""
    began = time.perf_counter()
    await pair.processes[0].kill()
    return await next_entry(client, began)


async def failover_with_leader(pair: Pair, client: JournalClient) -> float:
    """Seconds from kill -9 of copy b, which is active, and of the leader of the cluster, to the next entry."""
    await pair.processes[0].start()
    await pair.reach("in sync", "active")
    leader = await pair.cluster.leader()
    began = time.perf_counter()
    await asyncio.gather(pair.cluster.kill([leader]), pair.processes[1].kill())
    return await next_entry(client, began)


async def next_entry(client: JournalClient, began: float) -> float:
    while True:
        with contextlib.suppress(AppendUnknown, NotActive):
            await client.append(ENTRY)
            return time.perf_counter() - began


async def measure(folder: Path, seconds: float) -> dict[str, float]:
    async with running_pair(folder) as pair, JournalClient(ROLE, pair.addresses) as client:
        entries = await batched(client, seconds)
        one = await one_at_a_time(client, seconds)
        bare = await relayed(folder, seconds)
        return {
            ENTRIES: entries, ONE_P50_MS: one, RELAY_P50_MS: bare, FAILOVER_S: await failover(pair, client),
            WITH_LEADER_S: await failover_with_leader(pair, client),
        }  # fmt: skip


def judged(figures: dict[str, float]) -> list[Line]:
    return [
        alone("acknowledged entries of 100 bytes", "1/s", figures[ENTRIES], ENTRIES_WANTED),
        alone("one at a time, p50", "ms", figures[ONE_P50_MS], Threshold()),
        alone("bare relay, p50", "ms", figures[RELAY_P50_MS], Threshold()),
        alone(
            "one at a time, relative to the relay", "ratio", figures[ONE_P50_MS] / figures[RELAY_P50_MS], TIMES_RELAY
        ),
        alone("failover after kill -9", "s", figures[FAILOVER_S], FAILOVER_WANTED),
        alone("failover after kill -9 of copy and leader", "s", figures[WITH_LEADER_S], WITH_LEADER_WANTED),
    ]


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        content: dict[str, Any] = {"machine": surroundings(Path(temporary)), "seconds_per_step": options.seconds}
        for number in range(1, options.rounds + 1):
            with tempfile.TemporaryDirectory(dir=temporary) as own:
                rounds.append(await measure(Path(own), options.seconds))
            shown = ", ".join(f"{step} {value:,.2f}" for step, value in rounds[-1].items())
            print(f"round {number} of {options.rounds}: {shown}", flush=True)
    lines = judged(medians(rounds))
    return lines, content | {"result": [line.to_json() for line in lines], "rounds": rounds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each step")
    parser.add_argument("--data-dir", type=Path, help="where all processes write; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--no-keep", action="store_true", help="write no JSON")
    options = parser.parse_args()
    try:
        need("setpriv")
        lines, content = uvloop.run(run(options))
    except (ToolMissing, NotReady, ProcessEnded, TimeoutError) as error:
        print(f"journal: {error}", file=sys.stderr)
        return 2
    show(f"medians of {options.rounds} rounds", lines)
    if not options.no_keep:
        print(f"kept in {keep('journal', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
