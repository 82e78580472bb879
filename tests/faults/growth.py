"""The resources that a node uses, and whether they have grown over its restarts (issue 5)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support.fencing_cluster import now
from tests.support.processes import NodeProcess

DESCRIPTORS_MORE = 8
"""Connections of clients and between nodes come and go."""
THREADS_MORE = 2
MEMORY_TIMES, MEMORY_MORE = 1.5, 64 << 20
"""More keys exist at the end than at the beginning."""
LOG_MORE = VAULT_MORE = 64 << 20
"""The log keeps this many entries, however much is written: its file may grow to that size. A vault is no larger than
the store, which also has the history, unless a reader keeps old pages from being reused."""

VERIFIED_S = 60.0
"""Time within which a large store, which is served meanwhile, has been verified; some seconds for each GiB."""
LOOK_S = 0.05


@dataclass(frozen=True, slots=True)
class Taken:
    """`memory_bytes`: without memory-mapped files. `disk_bytes`: by folder; `files`: the files in the data folder."""

    memory_bytes: int
    descriptors: int
    threads: int
    disk_bytes: dict[str, int]
    files: frozenset[str]

    def shown(self) -> str:
        disk = ", ".join(f"{name} {size >> 20}" for name, size in sorted(self.disk_bytes.items()))
        own = f"{self.memory_bytes >> 20} MiB, {self.descriptors} descriptors, {self.threads} threads"
        return f"{own}, {len(self.files)} files, MiB of disk: {disk}"


async def verified(store: Path, within_s: float = VERIFIED_S) -> None:
    """Wait until the node has completed its start: a mark is in its store while a child verifies the file."""
    mark, end = store / "UNVERIFIED", now() + within_s
    while mark.exists():
        assert now() < end, f"{store} is not verified after {within_s:g} s"
        await asyncio.sleep(LOOK_S)


async def taken_by(node: NodeProcess) -> Taken:
    """Of a running node, when its store has been verified."""
    await verified(node.data_dir / "store")
    process, folder = Path(f"/proc/{node.pid}"), node.data_dir
    lines = dict(line.split(":", 1) for line in (process / "status").read_text(encoding="utf-8").splitlines())
    files = [Path(path) / name for path, _, names in os.walk(folder) for name in names]
    disk: dict[str, int] = {}
    for file in files:
        part = file.relative_to(folder).parts[0]
        disk[part] = disk.get(part, 0) + file.stat().st_blocks * 512
    return Taken(
        int(lines["RssAnon"].split()[0]) << 10,
        len(os.listdir(process / "fd")),
        int(lines["Threads"]),
        disk,
        frozenset(str(file.relative_to(folder)) for file in files),
    )


def grown(taken: Sequence[Taken]) -> list[str]:
    """Resources of which the last measurement exceeds the first one too much, as text."""
    first, last = taken[0], taken[-1]
    found = []
    if last.descriptors > first.descriptors + DESCRIPTORS_MORE:
        found.append(f"from {first.descriptors} to {last.descriptors} descriptors")
    if last.threads > first.threads + THREADS_MORE:
        found.append(f"from {first.threads} to {last.threads} threads")
    if last.memory_bytes > MEMORY_TIMES * first.memory_bytes + MEMORY_MORE:
        found.append(f"from {first.memory_bytes >> 20} to {last.memory_bytes >> 20} MiB of memory")
    if last.disk_bytes.get("raft", 0) > first.disk_bytes.get("raft", 0) + LOG_MORE:
        found.append(f"the log from {first.disk_bytes.get('raft', 0)} to {last.disk_bytes['raft']} bytes")
    store, vault = (last.disk_bytes.get(part, 0) for part in ("store", "vault"))
    if vault > max(store, first.disk_bytes.get("vault", 0)) + VAULT_MORE:
        found.append(f"the vault has {vault} bytes, the store {store}")
    left = sorted(last.files - first.files)
    if left:
        found.append(f"files are left behind: {', '.join(left[:5])}")
    return found
