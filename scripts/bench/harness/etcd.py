"""Three members of etcd with its defaults: fsync on, heartbeat 100 ms, election timeout 1,000 ms."""

from __future__ import annotations

import subprocess
from pathlib import Path

from harness.process import Process
from harness.system import HOST, NODES, System, free_base_port

PEER_OFFSET = 100


class Etcd(System):
    name = "etcd"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        numbers = range(1, NODES + 1)
        base = free_base_port([*numbers, *(PEER_OFFSET + number for number in numbers)])
        self.version = version()
        self.urls = [f"http://{HOST}:{base + number}" for number in numbers]
        peers = [f"http://{HOST}:{base + PEER_OFFSET + number}" for number in numbers]
        cluster = ",".join(f"e{number}={peer}" for number, peer in zip(numbers, peers, strict=True))
        for number, client, peer in zip(numbers, self.urls, peers, strict=True):
            program = [
                "etcd",
                *("--name", f"e{number}", "--data-dir", str(folder / f"e{number}")),
                *("--listen-client-urls", client, "--advertise-client-urls", client),
                *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
                *("--initial-cluster", cluster, "--initial-cluster-state", "new"),
                *("--logger", "zap", "--log-level", "error"),
            ]
            self.processes.append(Process(f"e{number}", program, folder / f"e{number}.log", {}))

    async def is_ready(self, number: int) -> bool:
        status, answer = await self.get(number, "/health")
        return status == 200 and answer.get("health") == "true"


def version() -> str:
    """As the program prints it: '3.4.23'."""
    said = subprocess.run(["etcd", "--version"], capture_output=True, text=True, check=True).stdout
    return said.splitlines()[0].rpartition(" ")[2]
