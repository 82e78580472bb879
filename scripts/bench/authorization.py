"""The cost of authorization: puts and fenced reads over HTTP, with authorization on relative to off.

    scripts/bench/run authorization [--rounds N] [--seconds N] [--data-dir D] [--keep D] [--no-keep]

One machine, one run, three nodes on loopback, fsync on, wrk with one thread and 64 connections. A round starts a
cluster without and one with authorization, each on an empty folder, and measures them in turns of one second, so that
both have the same share of a machine whose speed changes; the one that is not measured is idle. Several rounds, since
their medians differ (22,675 to 32,380 reads/s without authorization in one run). With authorization on, a user with
the rights read and write on the keys has signed in, and each request carries its token. Puts go to the leader, and
fenced reads to a node that does not lead and has one processor to itself. Thresholds: issue 15, section 1. Exit codes:
0 every threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import uvloop

from harness.fenced_cluster import STRICT, FencedCluster, SignedIn
from harness.figures import Line, Threshold, all_pass, alone, medians
from harness.process import ProcessEnded
from harness.report import KEPT, ToolMissing, keep, need, show, surroundings
from harness.system import NotReady
from harness.wrk import LoadFailed

PLAIN = "plain/"
PUTS, PUT_P50_MS, READS = "puts_64_per_s", "put_1_p50_ms", "fenced_reads_64_per_s"
WARM_UP_S, TURN_S = 2.0, 1.0
CONNECTIONS = 64
PUTS_KEPT, READS_KEPT = Threshold(at_least=0.85), Threshold(at_least=0.9)


class Measured:
    """One start of one cluster. `beside`: the one that is measured in turns with it."""

    def __init__(self, cluster: FencedCluster, beside: FencedCluster) -> None:
        self.cluster = cluster
        self._beside = [process.pid for process in beside.processes]

    async def prepare(self) -> None:
        await self.cluster.make_strict()
        self.leader = await self.cluster.leader()
        self._reader = (self.leader + 1) % len(self.cluster.urls)
        await self.cluster.puts(self.leader, PLAIN, CONNECTIONS, WARM_UP_S)
        await self.cluster.puts(self.leader, STRICT, CONNECTIONS, WARM_UP_S)
        await self.reads(WARM_UP_S)

    async def one_put(self, seconds: float) -> float:
        return (await self.cluster.puts(self.leader, PLAIN, 1, seconds)).p50_ms

    async def puts(self, seconds: float) -> float:
        return (await self.cluster.puts(self.leader, PLAIN, CONNECTIONS, seconds)).per_s

    async def reads(self, seconds: float) -> float:
        key = f"{STRICT}{0:08d}"
        return (await self.cluster.fenced_reads(self._reader, key, CONNECTIONS, seconds, self._beside)).per_s

    async def check(self) -> None:
        if await self.cluster.leader() != self.leader:
            raise LoadFailed("the leader changed during the run: measure on a quieter machine")


STEPS = {PUT_P50_MS: Measured.one_put, PUTS: Measured.puts, READS: Measured.reads}


async def measure(folder: Path, turns: int) -> dict[str, list[dict[str, float]]]:
    """Name of the cluster -> step -> figure, for each turn."""
    async with AsyncExitStack() as running:
        off = await running.enter_async_context(FencedCluster(folder / "off"))
        on = await running.enter_async_context(SignedIn(folder / "on", secrets.token_hex(16)))
        measured = {"off": Measured(off, beside=on), "on": Measured(on, beside=off)}
        for each in measured.values():
            await each.prepare()
        found: dict[str, list[dict[str, float]]] = {name: [{} for _ in range(turns)] for name in measured}
        for step, figure in STEPS.items():
            for turn in range(turns):
                for name, each in measured.items():
                    found[name][turn][step] = await figure(each, TURN_S)
        for each in measured.values():
            await each.check()
        return found


def judged(off: dict[str, float], on: dict[str, float]) -> list[Line]:
    return [
        alone("puts, off", "1/s", off[PUTS], Threshold()),
        alone("puts, on", "1/s", on[PUTS], Threshold()),
        alone("puts, on relative to off", "ratio", on[PUTS] / off[PUTS], PUTS_KEPT),
        alone("put, 1 connection, p50, on rel. to off", "ratio", on[PUT_P50_MS] / off[PUT_P50_MS], Threshold()),
        alone("fenced reads, off", "1/s", off[READS], Threshold()),
        alone("fenced reads, on", "1/s", on[READS], Threshold()),
        alone("fenced reads, on relative to off", "ratio", on[READS] / off[READS], READS_KEPT),
    ]


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    turns: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        folder = Path(temporary)
        content: dict[str, Any] = {"machine": surroundings(folder), "turns_per_round": options.seconds}
        for number in range(1, options.rounds + 1):
            with tempfile.TemporaryDirectory(dir=folder) as own:
                figures = await measure(Path(own), options.seconds)
            for name, found in figures.items():
                turns[name] += found
                shown = ", ".join(f"{step} {value:,.1f}" for step, value in medians(found).items())
                print(f"round {number} of {options.rounds}, authorization {name}: {shown}", flush=True)
    lines = judged(medians(turns["off"]), medians(turns["on"]))
    return lines, content | {"result": [line.to_json() for line in lines], "turns": turns}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=5, help="length of each step, per cluster")
    parser.add_argument("--data-dir", type=Path, help="where the nodes write; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--no-keep", action="store_true", help="write no JSON")
    options = parser.parse_args()
    try:
        need("wrk", "setpriv")
        lines, content = uvloop.run(run(options))
    except (ToolMissing, NotReady, ProcessEnded, LoadFailed, TimeoutError) as error:
        print(f"authorization: {error}", file=sys.stderr)
        return 2
    show(f"medians of {options.rounds * options.seconds} turns", lines)
    if not options.no_keep:
        print(f"kept in {keep('authorization', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
