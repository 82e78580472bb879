"""Processes around one vault: the node that serves it, and readers of it. Each prints a line of JSON when it is ready.

python -P -m harness.fenced_vault serve FOLDER KEYS      holds the lease until its standard input ends
python -P -m harness.fenced_vault read FOLDER KEYS SECONDS SEED     waits for a line, measures, prints its figures
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palisade.vault.change import HEADER, Revision
from palisade.vault.fence_file import clock_ns
from palisade.vault.opening import open_vault
from palisade.vault.reader import VaultReader

BATCH = 10_000
VALUE = b"x" * 100
LEASE_NS = 3_000_000_000
RENEWAL_S = 0.6
SAMPLE_KEYS = 200_000
TURN_KEYS = 1_000
START_S = 300.0


@dataclass(frozen=True, slots=True)
class ReaderFigures:
    """Of one process. `same_key_per_s`: reads of one key repeatedly, as for etcd. Latencies in microseconds, of reads
    of random keys that were timed one by one.
    """

    per_s: float
    same_key_per_s: float
    p50_us: float
    p99_us: float


def name_of(number: int) -> bytes:
    return b"flights/2013/%08d" % number


def body_of(number: int, revision: int) -> bytes:
    key = name_of(number)
    return HEADER.pack(revision, revision, 1, 0, len(key), len(VALUE)) + key + VALUE


def serve(folder: Path, keys: int) -> None:
    """With the timing of a node: T_fence 3 s, a renewal every fifth of that."""
    vault = open_vault(folder)
    vault.apply([Revision(1, ())])
    for start in range(0, keys, BATCH):
        numbers = range(start, min(start + BATCH, keys))
        vault.apply([Revision(number + 2, [body_of(number, number + 2)]) for number in numbers])
    vault.staging.release(vault.revision)
    if vault.page is None:
        raise RuntimeError("a vault on disk has a fence page")
    vault.page.serve(clock_ns() + LEASE_NS, 1)
    say({"keys": vault.key_count})
    asyncio.run(hold_lease(vault))
    vault.close()


async def hold_lease(vault: Any) -> None:
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        vault.page.serve(clock_ns() + LEASE_NS, 1)
        await asyncio.wait([ended], timeout=RENEWAL_S)


def read(folder: Path, keys: int, seconds: float, seed: int) -> None:
    """Random keys: first for the rate, then each one timed."""
    rng = random.Random(seed)
    sample = [name_of(rng.randrange(keys)) for _ in range(SAMPLE_KEYS)]
    with VaultReader(folder) as reader:
        for key in sample:
            reader.get(key)
        say({"ready": True})
        sys.stdin.readline()
        per_s = rate(reader, sample, seconds)
        same_key_per_s = rate(reader, sample[:1] * SAMPLE_KEYS, seconds)
        taken = sorted(durations_ns(reader, sample))
    p50_us, p99_us = taken[len(taken) // 2] / 1e3, taken[len(taken) * 99 // 100] / 1e3
    say({"per_s": per_s, "same_key_per_s": same_key_per_s, "p50_us": p50_us, "p99_us": p99_us})


def rate(reader: VaultReader, sample: Sequence[bytes], seconds: float) -> float:
    get, done = reader.get, 0
    began = time.perf_counter()
    while True:
        for start in range(0, len(sample), TURN_KEYS):
            for key in sample[start : start + TURN_KEYS]:
                get(key)
            done += TURN_KEYS
            took = time.perf_counter() - began
            if took >= seconds:
                return done / took


def durations_ns(reader: VaultReader, sample: Sequence[bytes]) -> list[int]:
    get, clock, found = reader.get, time.perf_counter_ns, []
    for key in sample:
        began = clock()
        get(key)
        found.append(clock() - began)
    return found


def say(what: dict[str, Any]) -> None:
    print(json.dumps(what), flush=True)


# The side of the benchmark


@asynccontextmanager
async def served_vault(folder: Path, keys: int) -> AsyncIterator[None]:
    """A vault with `keys` keys, served by a process inside the context."""
    node = await started("serve", folder, keys)
    try:
        await heard(node)
        yield
    finally:
        await ended(node)


async def run_readers(folder: Path, keys: int, seconds: float, processes: int) -> list[ReaderFigures]:
    """All at once; each in a process of its own."""
    readers = [await started("read", folder, keys, seconds, seed) for seed in range(processes)]
    try:
        for reader in readers:
            await heard(reader)
        for reader in readers:
            if reader.stdin is not None:
                reader.stdin.write(b"go\n")
        return [ReaderFigures(**await heard(reader)) for reader in readers]
    finally:
        for reader in readers:
            await ended(reader)


async def started(*arguments: object) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "harness.fenced_vault", *map(str, arguments)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )


async def heard(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """The next line of JSON. Raises RuntimeError when the process has ended instead."""
    if process.stdout is None:
        raise RuntimeError("a process without a pipe")
    async with asyncio.timeout(START_S):
        line = await process.stdout.readline()
    if not line:
        raise RuntimeError("a process around the vault ended: what it said is above")
    found: dict[str, Any] = json.loads(line)
    return found


async def ended(process: asyncio.subprocess.Process) -> None:
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(START_S):
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        read(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
