"""A cluster of three traced nodes with a strict region and, with authorization on, a user with the right to write."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path
from typing import Any

import aiohttp

from palisade.wire.credentials import Credentials, Password, Token, header_of
from tests.paths.trace import Trace
from tests.support.processes import Cluster, NodeProcess, until

ROOT, USER = Password("root", "password of root"), Password("writer", "password of writer")
PREFIX, STRICT_PREFIX = "/paths/", "/paths/strict/"


class Disturbed(Exception):
    """A node did not start, the leader changed or a request failed. The next cluster may do better."""


def trace_file(node: NodeProcess) -> Path:
    return node.data_dir.with_suffix(".trace")


class TracedCluster:
    """`open` it first. Requests have to carry `token` unless it is None."""

    def __init__(self, folder: Path, *, authorization: bool) -> None:
        self.authorization = authorization
        options = {"authorization": "off"}
        if authorization:
            password_file = folder / "root-password"
            password_file.write_text(ROOT.password)
            token = secrets.token_hex(16)
            options = {"authorization": "on", "join_token": token, "root_password_file": str(password_file)}
        self._cluster = Cluster(folder, 3, **options)
        for node in self._cluster.nodes:
            node.program = ["-m", "tests.paths.traced_node", str(trace_file(node)), *node.program[1:]]
        self._root = ROOT if authorization else None
        self.token: Token | None = None
        self.leader = self.follower = self._cluster.nodes[0]

    async def open(self) -> None:
        """Start the nodes; return once all serve fenced reads and a strict region. Raises Disturbed."""
        self._cluster.start()
        try:
            await self._cluster.ready()
        except AssertionError as error:
            raise Disturbed(str(error)) from error
        self.leader = await self._leading()
        self.follower = next(node for node in self._cluster.nodes if node is not self.leader)
        await until(self._all_serve, "every node serving fenced reads")
        await self._do("PUT", "/v1/regions/strict", {"prefix": STRICT_PREFIX})
        if self.authorization:
            await self._add_user()

    async def _add_user(self) -> None:
        path = "/v1/catalog/operations/{}?wait_s=20"
        await self._do("POST", path.format("create-user"), {"user": USER.user, "password": USER.password})
        for privilege in ("read", "write"):
            grant = {"subject": f"user:{USER.user}", "privilege": privilege, "prefix": PREFIX}
            await self._do("POST", path.format("grant"), grant)
        signed_in = await self._do("POST", "/v1/login", {"user": USER.user, "password": USER.password})
        self.token = Token(signed_in["token"])

    async def _leading(self) -> NodeProcess:
        async def leading() -> NodeProcess | None:
            for node in self._cluster.nodes:
                _, found = await ask(node, "GET", "/v1/status", self._root)
                if found.get("role") == "leader":
                    return node
            return None

        found: NodeProcess = await until(leading, "a leader")
        return found

    async def _all_serve(self) -> bool:
        for node in self._cluster.nodes:
            _, found = await ask(node, "GET", "/v1/fencing", self._root)
            if not (found.get("lease") or {}).get("serves"):
                return False
        return True

    async def _do(self, method: str, path: str, body: Any) -> dict[str, Any]:
        status, found = await ask(self.leader, method, path, self._root, body)
        if status != 200:
            raise RuntimeError(f"{method} {path}: {status} {found}")
        return found

    def begin(self) -> None:
        for node in self._cluster.nodes:
            node.interrupt(signal.SIGUSR1)

    async def traces(self) -> dict[str, Trace]:
        """End the recording; the trace of each role. Raises Disturbed if the leader has changed."""
        if await self._leading() is not self.leader:
            raise Disturbed("the leader changed while requests were traced; run it again")
        found = {}
        for role, node in (("leader", self.leader), ("follower", self.follower)):
            node.interrupt(signal.SIGUSR2)
            await until(trace_file(node).exists, f"the trace of {node.id}")
            found[role] = Trace.read(trace_file(node))
        return found

    def close(self) -> None:
        self._cluster.kill()


async def ask(
    node: NodeProcess, method: str, path: str, credentials: Credentials | None, body: Any = None
) -> tuple[int, dict[str, Any]]:
    """(status, answer); (0, {}) if the node does not answer."""
    timeout = aiohttp.ClientTimeout(total=25)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, headers=header_of(credentials)) as session,
            session.request(method, f"http://{node.http}{path}", json=body) as response,
        ):
            found: dict[str, Any] = await response.json(content_type=None)
            return response.status, found
    except (TimeoutError, aiohttp.ClientError, OSError):
        return 0, {}
