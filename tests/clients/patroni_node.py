"""One PostgreSQL node run by Patroni, with its data and ports; ended by process id."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.faults import kernel
from tests.support.processes import free_port

TTL_S, LOOP_S, RETRY_S = 20, 2, 4
"""Patroni demands a ttl of at least 20 s, and loop_wait + 2 * retry_timeout <= ttl."""


def not_as_root() -> list[str]:
    """The beginning of a command that runs as another user than root, which PostgreSQL refuses.

    In a user namespace of its own the program still reads a Python that only root may read."""
    return ["unshare", "--user", "--map-user=1000", "--map-group=1000"] if os.geteuid() == 0 else []


class PatroniNode:
    """`etcd`: host:port of the nodes that serve its JSON API."""

    def __init__(self, folder: Path, name: str, programs: Path, etcd: Sequence[str]) -> None:
        self.name = name
        self.rest, self.postgres = f"127.0.0.1:{free_port()}", free_port()
        self._folder = folder / name
        self._folder.mkdir(mode=0o700)
        self.log_file = folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._configuration = self._folder / "patroni.json"
        self._configuration.write_text(json.dumps(self._settings(programs, etcd), indent=1))

    def _settings(self, programs: Path, etcd: Sequence[str]) -> dict[str, Any]:
        password = {"password": "secret"}
        return {
            "scope": "demo",
            "name": self.name,
            "restapi": {"listen": self.rest, "connect_address": self.rest},
            "etcd3": {"hosts": list(etcd), "protocol": "http"},
            "bootstrap": {
                "dcs": {"ttl": TTL_S, "loop_wait": LOOP_S, "retry_timeout": RETRY_S},
                "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, {"auth": "trust"}, "no-sync"],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.postgres}",
                "connect_address": f"127.0.0.1:{self.postgres}",
                "data_dir": str(self._folder / "data"),
                "bin_dir": str(programs),
                "pgpass": str(self._folder / "pgpass"),
                "use_pg_rewind": True,
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust",
                           "host replication all 127.0.0.1/32 trust"],
                "authentication": {
                    "superuser": {"username": "postgres", **password},
                    "replication": {"username": "replicator", **password},
                },
                "parameters": {"unix_socket_directories": str(self._folder), "fsync": "off"},
            },
        }  # fmt: skip

    def start(self) -> None:
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*not_as_root(), sys.executable, "-m", "patroni", str(self._configuration)],
                cwd=self._folder, stdout=log, stderr=log,
                start_new_session=True, preexec_fn=kernel.die_with_parent,
                env={**os.environ, "HOME": str(self._folder), "NO_PROXY": "*"},
            )  # fmt: skip

    def kill(self) -> None:
        """SIGKILL to Patroni and to its PostgreSQL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self._folder / "data/postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    async def view(self) -> dict[str, Any]:
        """Its state; empty while it does not answer."""
        try:
            async with aiohttp.ClientSession() as session, session.get(f"http://{self.rest}/patroni") as answer:
                return dict(await answer.json(content_type=None))
        except (aiohttp.ClientError, OSError, ValueError):
            return {}

    async def is_primary(self) -> bool:
        found = await self.view()
        return found.get("role") in ("primary", "master") and found.get("state") == "running"

    async def is_streaming(self) -> bool:
        found = await self.view()
        return found.get("role") == "replica" and found.get("replication_state") == "streaming"

    async def ask_switchover(self, to: PatroniNode) -> tuple[int, str]:
        body = {"leader": self.name, "candidate": to.name}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"http://{self.rest}/switchover", json=body) as answer,
        ):
            return answer.status, await answer.text()

    def log(self) -> str:
        return self.log_file.read_text(errors="replace")
