"""A real etcd, started on free loopback ports with a folder of its own, ended by its process id."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import warnings
from pathlib import Path

import pytest
from aiohttp import ClientError, ClientSession

START_S = 20.0


MISSING = (
    "NOT COMPARED WITH ETCD: there is no 'etcd' on this machine. On Debian: apt-get install etcd-server. "
    "Where PALISADE_REQUIRE_ETCD is set, this is a failure."
)


def require_etcd() -> str:
    """Where etcd is. Where there is none the tests that need it are skipped, loudly, or fail."""
    found = shutil.which("etcd")
    if found is not None:
        return found
    if os.environ.get("PALISADE_REQUIRE_ETCD"):
        pytest.fail(MISSING)
    warnings.warn(MISSING, stacklevel=1)
    pytest.skip(MISSING)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Etcd:
    """One member. `url` answers once `start` has returned."""

    def __init__(self, binary: str, folder: Path) -> None:
        client, peer = (f"http://127.0.0.1:{port}" for port in free_ports(2))
        self.url = client
        self._log = (folder / "etcd.log").open("wb")
        self._process = subprocess.Popen(
            [
                binary,
                "--name=real",
                f"--data-dir={folder / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=real={peer}",
                "--unsafe-no-fsync",
                "--max-txn-ops=1024",
                "--logger=zap",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
        )

    async def start(self) -> None:
        async with asyncio.timeout(START_S), ClientSession(self.url) as session:
            while True:
                try:
                    async with session.get("/health") as answer:
                        if '"true"' in await answer.text():
                            return
                except ClientError:
                    pass
                if self._process.poll() is not None:
                    raise RuntimeError("etcd ended at its start; its log is in the folder of the test")
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
