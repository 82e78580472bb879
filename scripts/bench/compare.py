"""Palisade against etcd: puts and linearizable reads over HTTP, and puts over the stream; medians and ratios.

    scripts/bench/run compare [--rounds N] [--seconds N] [--data-dir D] [--keep D] [--no-keep]

One machine, one run, three servers each on loopback, fsync on, the same load generator (wrk with one thread). A round
starts one system on an empty folder, warms it up, measures every step and stops it; the other system has no process
meanwhile. The rounds alternate between the two. All load goes to the leader of each system. Values have 100 bytes;
every step writes the same 100,000 keys repeatedly, from the first one on. Both systems run with their defaults, so
Palisade compacts its history continuously (more than 100,000 revisions), and etcd does not. Exit codes: 0 every
threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from harness.etcd import Etcd
from harness.figures import Line, Threshold, all_pass, medians, versus
from harness.palisade import Palisade
from harness.process import ProcessEnded
from harness.report import KEPT, ToolMissing, keep, need, show, surroundings
from harness.stream import run_stream
from harness.system import NotReady, System
from harness.wrk import PUT, RANGE, LoadFailed, run_wrk, write_keys

KEYS = [b"flights/2013/%08d" % number for number in range(100_000)]
WARM_UP_S = 3.0
OUTSTANDING = 1024
PUTS_64, PUTS_256, PUTS_1, READS_64 = "puts_64_per_s", "puts_256_per_s", "puts_1_per_s", "reads_64_per_s"
PUT_P50_MS, STREAM = "put_1_p50_ms", "stream_puts_per_s"
STREAM_CPU_US, STREAM_PLAIN = "stream_nodes_cpu_us_per_put", "stream_puts_without_request_ids_per_s"
HTTP_STEPS = ((PUTS_1, PUT, 1), (PUTS_64, PUT, 64), (PUTS_256, PUT, 256), (READS_64, RANGE, 64))


async def measure(system: System, key_file: Path, seconds: float) -> dict[str, float]:
    """Step -> figure, of one start of one system."""
    async with system:
        leader = await system.leader()
        url = system.urls[leader]
        await run_wrk(PUT, url, key_file, connections=64, duration_s=WARM_UP_S)
        figures: dict[str, float] = {}
        for step, script, connections in HTTP_STEPS:
            run = await run_wrk(script, url, key_file, connections=connections, duration_s=seconds)
            figures[step] = run.per_s
            if step == PUTS_1:
                figures[PUT_P50_MS] = run.p50_ms
        if isinstance(system, Palisade):
            figures |= await measure_stream(system, system.streams[leader], seconds)
        if await system.leader() != leader:
            raise LoadFailed(f"the leader of {system.name} changed during the run: measure on a quieter machine")
        return figures


async def measure_stream(system: Palisade, endpoint: str, seconds: float) -> dict[str, float]:
    """The client with its default settings, whose puts are executed exactly once; and, for comparison only, without
    request ids, as etcd's puts are."""
    before = sum(process.cpu_s() for process in system.processes)
    once = await run_stream([endpoint], KEYS, outstanding=OUTSTANDING, duration_s=seconds)
    cpu_s = sum(process.cpu_s() for process in system.processes) - before
    plain = await run_stream([endpoint], KEYS, outstanding=OUTSTANDING, duration_s=seconds, exactly_once=False)
    return {STREAM: once.per_s, STREAM_CPU_US: cpu_s / once.done * 1e6, STREAM_PLAIN: plain.per_s}


def judged(ours: dict[str, float], theirs: dict[str, float]) -> list[Line]:
    """The thresholds of issue 2, "How fast". The stream is compared with etcd's highest rate over HTTP."""
    best = max(theirs[step] for step in (PUTS_64, PUTS_256, PUTS_1))
    return [
        versus("puts, HTTP, 64 connections", "1/s", ours[PUTS_64], theirs[PUTS_64], Threshold(at_least=1.0)),
        versus("puts, HTTP, 256 connections", "1/s", ours[PUTS_256], theirs[PUTS_256], Threshold(at_least=1.3)),
        versus("put, HTTP, 1 connection, p50", "ms", ours[PUT_P50_MS], theirs[PUT_P50_MS], Threshold(at_most=1.5)),
        versus("reads, HTTP, 64 connections", "1/s", ours[READS_64], theirs[READS_64], Threshold(at_least=1.0)),
        versus("puts, stream, 1,024 outstanding", "1/s", ours[STREAM], best, Threshold(at_least=6.0)),
    ]


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        folder = Path(temporary)
        key_file = folder / "keys"
        write_keys(key_file, KEYS)
        content: dict[str, Any] = {"machine": surroundings(folder), "seconds_per_step": options.seconds}
        rounds: dict[str, list[dict[str, float]]] = {Palisade.name: [], Etcd.name: []}
        for number in range(1, options.rounds + 1):
            for make in (Etcd, Palisade):
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    system = make(Path(own) / make.name)
                    content.setdefault("versions", {})[system.name] = system.version
                    figures = await measure(system, key_file, options.seconds)
                rounds[system.name].append(figures)
                shown = ", ".join(f"{step} {value:,.1f}" for step, value in figures.items())
                print(f"round {number} of {options.rounds}, {system.name}: {shown}", flush=True)
    ours, theirs = medians(rounds[Palisade.name]), medians(rounds[Etcd.name])
    lines = judged(ours, theirs)
    content |= {"result": [line.to_json() for line in lines], "medians": {"palisade": ours, "etcd": theirs}}
    return lines, content | {"rounds": rounds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each step")
    parser.add_argument("--data-dir", type=Path, help="where both systems write; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--no-keep", action="store_true", help="write no JSON")
    options = parser.parse_args()
    try:
        need("wrk", "etcd", "setpriv")
        lines, content = uvloop.run(run(options))
    except (ToolMissing, NotReady, ProcessEnded, LoadFailed) as error:
        print(f"compare: {error}", file=sys.stderr)
        return 2
    show(f"medians of {options.rounds} rounds", lines)
    if not options.no_keep:
        print(f"kept in {keep('compare', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
