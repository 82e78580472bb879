"""The cost of fenced reads and strict writes, compared with etcd where possible (issue 4, "How fast").

    scripts/bench/run fencing [--part P]... [--keys N] [--rounds N] [--seconds N] [--data-dir D] [--keep D] [--no-keep]

Parts, all of them by default:

reader  `VaultReader.get` of random keys in one process and in two, of a vault that another process serves. And one key
        over and over, against etcd's linearizable reads of one key with one connection, on a cluster of three, which
        has no process while the readers run.

http    `GET /v1/fenced/KEY` of one key, 64 connections, at a node that does not lead; etcd: linearizable reads.
writes  Puts in a strict region and outside of it, on one connection (p50) and on 64 (rate), over HTTP at the leader.
stalls  The longest strict write while a node is stopped cleanly, and while one is killed.

Medians of the rounds count. Exit codes: 0 every threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from harness.etcd import Etcd
from harness.fenced_cluster import STRICT, FencedCluster
from harness.fenced_vault import run_readers, served_vault
from harness.figures import Line, Threshold, all_pass, alone, medians, versus
from harness.process import ProcessEnded
from harness.report import KEPT, ToolMissing, keep, need, show, surroundings
from harness.system import NotReady
from harness.wrk import PUT, RANGE, LoadFailed, run_wrk, write_keys
from palisade.fencing.timing import FenceTiming

ONE, P50_US, P99_US, TWO = "reads_per_s", "p50_us", "p99_us", "two_processes_reads_per_s"
SAME_KEY = "same_key_reads_per_s"
ETCD_READS = "reads_1_per_s"
HTTP_READS = "reads_64_per_s"
PLAIN = "plain/"
WARM_UP_S = 2.0
ETCD_KEYS = [b"flights/2013/%08d" % number for number in range(10_000)]
READS_PER_S = Threshold(at_least=500_000)
READ_P99_US = Threshold(at_most=5.0)
NEARLY_DOUBLE = Threshold(at_least=1.7)
TIMES_ETCD = Threshold(at_least=500)

Rounds = dict[str, list[dict[str, float]]]
"""System -> the figures of each round."""


async def reader_round(folder: Path, options: argparse.Namespace, rounds: Rounds) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        rounds.setdefault(Etcd.name, []).append(await etcd_reads(Path(own) / "etcd", options.seconds))
    with tempfile.TemporaryDirectory(dir=folder) as own:
        vault = Path(own) / "vault"
        async with served_vault(vault, options.keys):
            (one,) = await run_readers(vault, options.keys, options.seconds, 1)
            two = await run_readers(vault, options.keys, options.seconds, 2)
    both_per_s = sum(each.per_s for each in two)
    figures = {
        ONE: one.per_s,
        SAME_KEY: one.same_key_per_s,
        P50_US: one.p50_us,
        P99_US: one.p99_us,
        TWO: both_per_s,
    }
    rounds.setdefault("palisade", []).append(figures)


async def etcd_reads(folder: Path, seconds: float) -> dict[str, float]:
    """Linearizable, of its leader, one after the other."""
    async with Etcd(folder) as etcd:
        key_file = folder / "keys"
        write_keys(key_file, ETCD_KEYS)
        url = etcd.urls[await etcd.leader()]
        await run_wrk(PUT, url, key_file, connections=64, duration_s=WARM_UP_S)
        run = await run_wrk(RANGE, url, key_file, connections=1, duration_s=max(1.0, seconds))
        return {ETCD_READS: run.per_s}


def reader_lines(rounds: Rounds) -> list[Line]:
    ours, theirs = medians(rounds["palisade"]), medians(rounds[Etcd.name])
    return [
        alone("fenced reads, one process", "1/s", ours[ONE], READS_PER_S),
        alone("fenced read, p50", "us", ours[P50_US], Threshold()),
        alone("fenced read, p99", "us", ours[P99_US], READ_P99_US),
        alone("two processes: times one", "ratio", ours[TWO] / ours[ONE], NEARLY_DOUBLE),
        versus("reads of one key, 1 process, 1 conn.", "1/s", ours[SAME_KEY], theirs[ETCD_READS], TIMES_ETCD),
    ]


async def http_round(folder: Path, options: argparse.Namespace, rounds: Rounds) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        async with Etcd(Path(own) / "etcd") as etcd:
            keys = Path(own) / "keys"
            write_keys(keys, ETCD_KEYS)
            url = etcd.urls[await etcd.leader()]
            await run_wrk(PUT, url, keys, connections=64, duration_s=WARM_UP_S)
            run = await run_wrk(RANGE, url, keys, connections=64, duration_s=max(1.0, options.seconds))
    rounds.setdefault(Etcd.name, []).append({HTTP_READS: run.per_s})
    with tempfile.TemporaryDirectory(dir=folder) as own:
        async with fenced_cluster(Path(own)) as cluster:
            other = (await cluster.leader() + 1) % len(cluster.urls)
            await cluster.puts(other, STRICT, 64, WARM_UP_S)
            run = await cluster.fenced_reads(other, f"{STRICT}{0:08d}", 64, max(1.0, options.seconds))
    rounds.setdefault("palisade", []).append({HTTP_READS: run.per_s})


def http_lines(rounds: Rounds) -> list[Line]:
    ours, theirs = medians(rounds["palisade"]), medians(rounds[Etcd.name])
    title = "fenced reads over HTTP, 64 connections"
    return [versus(title, "1/s", ours[HTTP_READS], theirs[HTTP_READS], Threshold(at_least=1.5))]


async def writes_round(folder: Path, options: argparse.Namespace, rounds: Rounds) -> None:
    seconds = max(1.0, options.seconds)
    with tempfile.TemporaryDirectory(dir=folder) as own:
        async with fenced_cluster(Path(own)) as cluster:
            leader = await cluster.leader()
            for prefix in (PLAIN, STRICT):
                await cluster.puts(leader, prefix, 64, WARM_UP_S)
                one = await cluster.puts(leader, prefix, 1, seconds)
                many = await cluster.puts(leader, prefix, 64, seconds)
                rounds.setdefault(prefix, []).append({"p50_ms": one.p50_ms, "per_s": many.per_s})


def writes_lines(rounds: Rounds) -> list[Line]:
    strict, plain = medians(rounds[STRICT]), medians(rounds[PLAIN])
    slower, kept = strict["p50_ms"] / plain["p50_ms"], strict["per_s"] / plain["per_s"]
    return [
        alone("strict put, p50", "ms", strict["p50_ms"], Threshold()),
        alone("strict put, p50: times a plain one", "ratio", slower, Threshold(at_most=1.6)),
        alone("strict puts, 64 connections", "1/s", strict["per_s"], Threshold()),
        alone("strict puts, 64: of plain ones", "ratio", kept, Threshold(at_least=0.7)),
    ]


async def stalls_round(folder: Path, options: argparse.Namespace, rounds: Rounds) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as own:
        async with fenced_cluster(Path(own)) as cluster:
            leader = await cluster.leader()
            writer, victim = (leader + 1) % 3, (leader + 2) % 3

            async def kill() -> None:
                await cluster.kill([victim])

            polite_s = await cluster.longest_stall_s(writer, cluster.processes[victim].stop)
            await cluster.start([victim])
            await cluster.all_serve(range(3))
            killed_s = await cluster.longest_stall_s(writer, kill)
    rounds.setdefault("palisade", []).append({"polite_ms": polite_s * 1e3, "killed_s": killed_s})


def stalls_lines(rounds: Rounds) -> list[Line]:
    found = medians(rounds["palisade"])
    longest_s = FenceTiming().proceed_s() + 0.5
    return [
        alone("longest strict write, a node stops", "ms", found["polite_ms"], Threshold(at_most=100.0)),
        alone("longest strict write, a node is killed", "s", found["killed_s"], Threshold(at_most=longest_s)),
    ]


@asynccontextmanager
async def fenced_cluster(folder: Path) -> AsyncIterator[FencedCluster]:
    cluster = FencedCluster(folder / "palisade")
    async with cluster:
        await cluster.make_strict()
        yield cluster


Part = tuple[
    Callable[[Path, argparse.Namespace, Rounds], Awaitable[None]],
    Callable[[Rounds], list[Line]],
]
"""One round of a part, and the thresholds for all rounds."""

PARTS: dict[str, Part] = {
    "reader": (reader_round, reader_lines),
    "http": (http_round, http_lines),
    "writes": (writes_round, writes_lines),
    "stalls": (stalls_round, stalls_lines),
}


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="palisade-fencing-", dir=options.data_dir) as temporary:
        folder = Path(temporary)
        content: dict[str, Any] = {"machine": surroundings(folder), "keys": options.keys, "rounds": {}}
        lines: list[Line] = []
        for name in options.part or PARTS:
            one_round, judged = PARTS[name]
            rounds: Rounds = {}
            for number in range(1, options.rounds + 1):
                await one_round(folder, options, rounds)
                print(f"{name}, round {number} of {options.rounds}: {latest(rounds)}", flush=True)
            lines += judged(rounds)
            content["rounds"][name] = rounds
        return lines, content | {"result": [line.to_json() for line in lines]}


def latest(rounds: Rounds) -> str:
    return "; ".join(
        f"{system}: " + ", ".join(f"{step} {value:,.1f}" for step, value in figures[-1].items())
        for system, figures in rounds.items()
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; may be repeated")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="length of each step")
    parser.add_argument("--data-dir", type=Path, help="where the systems write; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--no-keep", action="store_true", help="write no JSON")
    options = parser.parse_args()
    try:
        need("wrk", "etcd", "setpriv")
        lines, content = uvloop.run(run(options))
    except (ToolMissing, NotReady, ProcessEnded, LoadFailed, RuntimeError, TimeoutError) as error:
        print(f"fencing: {error}", file=sys.stderr)
        return 2
    show(f"medians of {options.rounds} rounds, {options.keys:,} keys", lines)
    if not options.no_keep:
        print(f"kept in {keep('fencing', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
