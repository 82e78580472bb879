"""The cost of one put and one read in the state machine alone, without group and network: us each, median of the
rounds.

    scripts/bench/run apply [--keys N] [--batch N] [--rounds N] [--json]

`memory` is the ordered map in memory; `lmdb` is the store on disk, whose flush is measured separately.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from palisade.metastore.command_codec import encode_command
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.requests import Compact, Put, Range, RequestId, Txn
from palisade.metastore.state_machine import MetaStore


class Bench:
    """One store. Every step is timed, and continues where the previous one stopped."""

    def __init__(self, tables: Any, keys: int, batch: int) -> None:
        self.store = MetaStore(tables)
        self.names = [b"flights/2013/%08d" % number for number in range(keys)]
        self.batch = batch
        self.sequence = 0

    def apply(self, commands: Sequence[bytes]) -> float:
        """us per command."""
        began = time.perf_counter()
        for start in range(0, len(commands), self.batch):
            index = self.store.applied[0] + 1
            self.store.apply(index, 1, [index, index], commands[start : start + self.batch])
        return (time.perf_counter() - began) / len(commands) * 1e6

    def puts(self) -> float:
        return self.apply([encode_command(Put(name, b"x" * 100)) for name in self.names])

    def puts_with_ids(self) -> float:
        first = self.sequence + 1
        self.sequence += len(self.names)
        return self.apply(
            [
                encode_command(Put(name, b"x" * 100), RequestId("bench", sequence))
                for sequence, name in enumerate(self.names, first)
            ]
        )

    def transactions(self) -> float:
        """Of two puts; us per transaction."""
        pairs = zip(self.names[::2], self.names[1::2], strict=False)
        return self.apply([encode_command(Txn(success=(Put(one, b"x"), Put(two, b"x")))) for one, two in pairs])

    def each(self, read: Callable[[bytes], Any]) -> float:
        began = time.perf_counter()
        for name in self.names:
            read(name)
        return (time.perf_counter() - began) / len(self.names) * 1e6

    def gets(self) -> float:
        return self.each(self.store.get)

    def ranges(self) -> float:
        return self.each(lambda name: self.store.range(Range(name)))

    def scan(self) -> float:
        """us per key of one range over all."""
        began = time.perf_counter()
        found = self.store.range(Range(b"\0", b"\0")).kvs
        return (time.perf_counter() - began) / len(found) * 1e6

    def collection(self) -> float:
        """us per revision of the physical removal after compacting everything."""
        index, revisions = self.store.applied[0] + 1, self.store.revision - self.store.minimal_revision
        self.store.apply(index, 1, [index, index], [encode_command(Compact(self.store.revision))])
        began = time.perf_counter()
        while self.store.collect():
            pass
        return (time.perf_counter() - began) / revisions * 1e6


STEPS: list[tuple[str, Callable[[Bench], float]]] = [
    ("put, new key", Bench.puts),
    ("put, overwrite", Bench.puts),
    ("put with a request id", Bench.puts_with_ids),
    ("transaction of two puts", Bench.transactions),
    ("get", Bench.gets),
    ("range of one key", Bench.ranges),
    ("range of all, per key", Bench.scan),
    ("collection, per revision", Bench.collection),
]


def run_memory(options: argparse.Namespace) -> dict[str, float]:
    bench = Bench(MemoryMap(), options.keys, options.batch)
    return {name: step(bench) for name, step in STEPS}


async def run_lmdb(options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as directory:
        tables = LmdbStore(directory)
        try:
            bench = Bench(tables, options.keys, options.batch)
            figures: dict[str, float] = {}
            flush_us: list[float] = []
            for name, step in STEPS:
                figures[name] = step(bench)
                began, waiting = time.perf_counter(), tables.waiting_entries
                await tables.flush()
                if waiting > options.keys:
                    flush_us.append((time.perf_counter() - began) / waiting * 1e6)
            figures["flush, per entry"] = statistics.median(flush_us)
            return figures
        finally:
            tables.close()


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(run[name] for run in runs), 2) for name in runs[0]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = {
        "memory": medians([run_memory(options) for _ in range(options.rounds)]),
        "lmdb": medians([asyncio.run(run_lmdb(options)) for _ in range(options.rounds)]),
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return 0
    print(f"{'us each':28}{'memory':>10}{'lmdb':>10}")
    for name, value in figures["lmdb"].items():
        print(f"{name:28}{figures['memory'].get(name, float('nan')):10.2f}{value:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
