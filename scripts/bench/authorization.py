"""The cost of authorization: puts and fenced reads over HTTP, with authorization on relative to off.

    scripts/bench/run authorization [--rounds N] [--seconds N] [--data-dir D] [--keep D] [--no-keep]

One machine, one run, three nodes on loopback, fsync on, wrk with one thread and 64 connections. A round measures a
cluster without and one with authorization, one after the other, each on an empty folder. With authorization on, a user
with the rights read and write on the keys has signed in, and each request carries its token. Puts go to the leader, and
fenced reads to a node that does not lead and has one processor to itself. Thresholds: issue 15, section 1. Exit codes:
0 every threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
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
WARM_UP_S = 2.0
CONNECTIONS = 64
PUTS_KEPT, READS_KEPT = Threshold(at_least=0.85), Threshold(at_least=0.9)


async def measure(cluster: FencedCluster, seconds: float) -> dict[str, float]:
    """Step -> figure, of one start of one cluster."""
    async with cluster:
        await cluster.make_strict()
        leader = await cluster.leader()
        other = (leader + 1) % len(cluster.urls)
        await cluster.puts(leader, PLAIN, CONNECTIONS, WARM_UP_S)
        one = await cluster.puts(leader, PLAIN, 1, seconds)
        many = await cluster.puts(leader, PLAIN, CONNECTIONS, seconds)
        await cluster.puts(leader, STRICT, CONNECTIONS, WARM_UP_S)
        key = f"{STRICT}{0:08d}"
        await cluster.fenced_reads(other, key, CONNECTIONS, WARM_UP_S)
        reads = await cluster.fenced_reads(other, key, CONNECTIONS, seconds)
        if await cluster.leader() != leader:
            raise LoadFailed("the leader changed during the run: measure on a quieter machine")
        return {PUT_P50_MS: one.p50_ms, PUTS: many.per_s, READS: reads.per_s}


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
    rounds: dict[str, list[dict[str, float]]] = {"off": [], "on": []}
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        folder = Path(temporary)
        content: dict[str, Any] = {"machine": surroundings(folder), "seconds_per_step": options.seconds}
        for number in range(1, options.rounds + 1):
            for name in rounds:
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    place = Path(own) / "palisade"
                    cluster = SignedIn(place, secrets.token_hex(16)) if name == "on" else FencedCluster(place)
                    figures = await measure(cluster, options.seconds)
                rounds[name].append(figures)
                shown = ", ".join(f"{step} {value:,.1f}" for step, value in figures.items())
                print(f"round {number} of {options.rounds}, authorization {name}: {shown}", flush=True)
    lines = judged(medians(rounds["off"]), medians(rounds["on"]))
    return lines, content | {"result": [line.to_json() for line in lines], "rounds": rounds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each step")
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
    show(f"medians of {options.rounds} rounds", lines)
    if not options.no_keep:
        print(f"kept in {keep('authorization', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
