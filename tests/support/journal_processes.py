"""Copies of a journal as real processes, beside a real cluster."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.preloaded import Preloaded
from tests.support.processes import Cluster, free_port, palisade, until

ROLE = "orders"


class CopyProcess:
    """`arguments`: those of its process; they may be replaced before its start."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, kind: str, *options: str) -> None:
        self.name = name
        self.directory = folder / name
        self.address, self.metrics = (f"127.0.0.1:{free_port()}" for _ in range(2))
        self.log_file = folder / f"{name}.log"
        self.arguments = [
            "journal", "serve", f"--role={ROLE}", f"--name={name}", f"--dir={self.directory}",
            f"--listen={self.address}", f"--metrics={self.metrics}", f"--{kind}",
            f"--endpoints={','.join(cluster.endpoints)}", *options,
        ]  # fmt: skip
        self._process: Preloaded | None = None

    def start(self, *options: str) -> None:
        with self.log_file.open("ab") as log:
            self._process = Preloaded([*self.arguments, *options], log.fileno(), log.fileno())

    async def refused_start(self) -> tuple[int, str, str]:
        """Of a second process with the same directory, and ports of its own."""
        ports = {"--listen": f"127.0.0.1:{free_port()}", "--metrics": f"127.0.0.1:{free_port()}"}
        others = [each for each in self.arguments if each.partition("=")[0] not in ports]
        return await palisade(*others, *(f"{name}={address}" for name, address in ports.items()))

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class Pair:
    """Two copies, `a` the configured primary."""

    def __init__(self, cluster: Cluster, folder: Path, *options: str) -> None:
        self.cluster = cluster
        self.endpoints = f"--endpoints={','.join(cluster.endpoints)}"
        self.a = CopyProcess(cluster, folder, "a", "primary", *options)
        self.b = CopyProcess(cluster, folder, "b", "backup", *options)

    @property
    def addresses(self) -> list[str]:
        return [self.a.address, self.b.address]

    async def command(self, name: str, *arguments: str) -> tuple[int, str, str]:
        return await palisade("journal", name, f"--role={ROLE}", f"--copies={','.join(self.addresses)}", *arguments)

    async def status(self) -> list[dict[str, Any]]:
        """Also while none of them answers."""
        code, out, err = await self.command("status", "--json")
        assert code in {0, 3}, err
        copies: list[dict[str, Any]] = json.loads(out)["copies"]
        return copies

    async def states(self) -> tuple[str, str]:
        a, b = await self.status()
        return a["state"], b["state"]

    async def reach(self, a: str, b: str) -> None:
        async def holds() -> bool:
            return await self.states() == (a, b)

        await until(holds, f"the states {a} and {b}")

    def kill(self) -> None:
        self.a.kill()
        self.b.kill()


@asynccontextmanager
async def running_pair(cluster: Cluster, folder: Path) -> AsyncIterator[Pair]:
    """In sync; with `--allow-failback`."""
    cluster.start()
    await cluster.ready()
    pair = Pair(cluster, folder, "--allow-failback")
    try:
        pair.a.start()
        pair.b.start()
        await pair.reach("active", "in sync")
        yield pair
    finally:
        pair.kill()
