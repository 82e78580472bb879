"""A client whose requests are not in the history: it sends requests that must be refused, and reads with defaults.

It reports itself if a node is admitted that must not be, or if a read returns a wrong default.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

from palisade.metastore.requests import Compact, Put
from palisade.service.callers import UNRESTRICTED
from palisade.topology.admission_rules import JoinRequest
from palisade.topology.records import PROTOCOL_VERSION, NodeRole
from palisade.vault.regions import Mode, Policy, Region
from palisade.vault.snapshot_reads import ReadOrigin
from palisade.wire.topology_errors import JoinLater, JoinRejected
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED

DEFAULTED = Region("x", b"x/", Mode.STRICT, Policy.SAFE_DEFAULT, b"none")
KEY = b"x/a"
KEPT = 20


class Visitor:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._going = client, going
        self._world = client.world
        self._said: list[tuple[str, str, int, int]] = []

    async def run(self) -> None:
        acts = (self._knock, self._say_again, self._read, self._read, self._write, self._compact)
        while self._going():
            await asyncio.sleep(2.0 * self._world.chance.random())
            hosts = list(self._world.hosts.values())
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._world.chance.choice(acts)(self._world.chance.choice(hosts))
            except (*EXPECTED, ConnectionError, TimeoutError):
                continue

    async def _ask(self, host: Host, work: Callable[[Any], Any]) -> Any:
        return await self._world.ask(self._client.process, self._client.name, host.http, work)

    # Nodes that must be refused

    async def _knock(self, host: Host) -> None:
        """With everything right but one thing, which makes the refusal permanent."""
        request = self._world.chance.choice(self._wrong())
        if host.follows:
            return
        try:
            record = await self._ask(host, lambda node: node.registrar.join(request))
        except (JoinRejected, JoinLater):
            return
        self._world.fail("topology", f"{host.id} admits {request}, as {record}")

    def _wrong(self) -> tuple[JoinRequest, ...]:
        def request(**other: Any) -> JoinRequest:
            right: dict[str, Any] = {
                "cluster": "sim", "protocol": PROTOCOL_VERSION, "token": self._world.settings.token, "name": "stranger",
                "role": NodeRole.FOLLOWER, "instance": "another", "attempt": 1,
            }  # fmt: skip
            return JoinRequest(**(right | other))

        token = self._world.settings.token
        wrong = (
            request(cluster="other"),
            request(protocol=PROTOCOL_VERSION + 1),
            request(cluster_id="other"),
            request(),
        )
        return wrong if token is None else (*wrong, request(token=None), request(token=token + "?"))

    async def _say_again(self, host: Host) -> None:
        """An earlier announcement of a node arrives a second time, perhaps after it has restarted."""
        if self._said and not host.follows:
            name, instance, incarnation, revision = self._world.chance.choice(self._said)
            with contextlib.suppress(JoinRejected):
                await self._ask(host, lambda node: node.registrar.recovered(name, instance, incarnation, revision))
        for other in self._world.hosts.values():
            if other.is_active:
                member = other.node.topology.member
                self._said.append((other.id, member._own.instance, member.life.incarnation, member.life.recovered))
        del self._said[:-KEPT]

    # A region whose reads may be answered with a default

    async def _read(self, host: Host) -> None:
        async def read(node: Any) -> Any:
            part = node.fencing if host.follows else node.fencing.part
            return await part.reads.read(KEY)

        shown = await self._ask(host, read)
        if shown.origin is ReadOrigin.DEFAULT and shown.item.value != DEFAULTED.default:
            self._world.fail("policy", f"{host.id} answers {shown.item} where {DEFAULTED.default!r} is the default")

    async def _write(self, host: Host) -> None:
        if not host.follows:
            await self._ask(host, lambda node: node.key_values.write(Put(KEY, b"set"), caller=UNRESTRICTED))

    async def _compact(self, host: Host) -> None:
        """In the history, like every request of a client: up to an earlier revision, perhaps a compacted one."""
        revision = max(1, self._world.revision - self._world.chance.randint(-2, 60))
        await self._client.write(Compact(revision))
