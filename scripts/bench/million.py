"""A million keys: the private memory of a node, and the time from a restart until it is ready (issue 2, "How fast").

    scripts/bench/run million [--keys N] [--data-dir D] [--keep D] [--no-keep]

Three nodes on loopback, keys with 100-byte values put over the stream. Private memory is RssAnon + RssShmem of
/proc/<pid>/status, without the mapped files; of the node that has the most. Restarts: a follower and the leader after
kill -9, the whole cluster after kill -9 of all at once and after a clean stop; each until /readyz of the last node
returns 200, with every key still readable. Exit codes: 0 every threshold is met, 1 one is not, 2 it could not be
measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import uvloop

from harness.figures import Line, Threshold, all_pass, alone
from harness.palisade import Palisade
from harness.process import Process, ProcessEnded
from harness.report import KEPT, ToolMissing, keep, need, show, surroundings
from harness.stream import VALUE
from harness.system import NODES, NotReady
from harness.wrk import LoadFailed
from palisade.client import Client

MIB = 1 << 20
MEMORY_MIB = Threshold(at_most=200)
READY_S = Threshold(at_most=10)
PREFIX = b"flights/"
LOOK_S = 0.2
SETTLE_S = 5.0


class Memory:
    """The most that each process has had, in bytes; looked at every `LOOK_S`."""

    def __init__(self, processes: list[Process]) -> None:
        self._processes = processes
        self._peaks = [0] * len(processes)

    def now(self) -> list[int]:
        """Of each process; 0 for one that does not run."""
        found = []
        for process in self._processes:
            try:
                found.append(process.private_bytes())
            except (ProcessEnded, OSError, KeyError):
                found.append(0)
        return found

    def peaks(self) -> list[int]:
        """The maximum of each since the last call."""
        self._look()
        peaks, self._peaks = self._peaks, [0] * len(self._processes)
        return peaks

    def _look(self) -> None:
        self._peaks = list(map(max, self._peaks, self.now()))

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        async def look() -> None:
            while True:
                self._look()
                await asyncio.sleep(LOOK_S)

        task = asyncio.create_task(look())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def load(system: Palisade, keys: int) -> float:
    """Put them all; returns the seconds it took."""
    began = time.monotonic()
    async with Client(system.streams, timeout_s=30.0) as client:
        await client.put_many((PREFIX + b"%08d" % number, VALUE) for number in range(keys))
    return time.monotonic() - began


async def check_count(system: Palisade, keys: int) -> None:
    """Raises LoadFailed unless a linearizable read finds every key."""
    async with Client(system.streams, timeout_s=30.0) as client:
        found = (await client.range(PREFIX, prefix=True, count_only=True)).count
    if found != keys:
        raise LoadFailed(f"{keys:,} keys were acknowledged, {found:,} are there: acknowledged writes were lost")


async def restarts(system: Palisade, keys: int) -> dict[str, float]:
    """Which restart -> seconds until ready."""
    all_nodes = range(NODES)
    leader = await system.leader()
    follower = (leader + 1) % NODES
    took: dict[str, float] = {}
    for name, numbers in (
        ("a follower, kill -9", [follower]),
        ("the leader, kill -9", [leader]),
        ("all nodes, kill -9", all_nodes),
    ):
        await system.kill(numbers)
        took[name] = await system.start(numbers)
        await check_count(system, keys)
        await asyncio.sleep(SETTLE_S)
    await system.stop()
    took["all nodes, stopped"] = await system.start()
    await check_count(system, keys)
    return took


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        content: dict[str, Any] = {"machine": surroundings(Path(temporary)), "keys": options.keys}
        system = Palisade(Path(temporary) / "nodes")
        memory = Memory(system.processes)
        async with system, memory.watched():
            sizes = {"empty": memory.now()}
            loaded_s = await load(system, options.keys)
            print(f"{options.keys:,} puts in {loaded_s:.1f} s", flush=True)
            await asyncio.sleep(SETTLE_S)
            sizes |= {"the most while putting": memory.peaks(), "after the puts": memory.now()}
            took = await restarts(system, options.keys)
            await asyncio.sleep(SETTLE_S)
            sizes |= {"the most through the restarts": memory.peaks(), "after a restart": memory.now()}
    lines = [
        *(alone(f"private memory, {when}", "MiB", max(found) / MIB, MEMORY_MIB) for when, found in sizes.items()),
        *(alone(f"ready again: {name}", "s", seconds, READY_S) for name, seconds in took.items()),
    ]
    content["result"] = [line.to_json() for line in lines]
    content["puts_per_s"] = round(options.keys / loaded_s)
    content["private_mib"] = {when: [round(size / MIB, 1) for size in found] for when, found in sizes.items()}
    return lines, content


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--data-dir", type=Path, help="where the nodes write; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--no-keep", action="store_true", help="write no JSON")
    options = parser.parse_args()
    try:
        need("setpriv")
        lines, content = uvloop.run(run(options))
    except (ToolMissing, NotReady, ProcessEnded, LoadFailed) as error:
        print(f"million: {error}", file=sys.stderr)
        return 2
    show(f"{options.keys:,} keys with 100-byte values", lines)
    if not options.no_keep:
        print(f"kept in {keep('million', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
