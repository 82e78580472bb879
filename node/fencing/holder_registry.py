"""The registered lease holders of the cluster: a system record for each holder, written before its first grant (F3).

`holder/<node>` holds vault, lease, whether it fences, and how long its leases count; an empty record means that no
holder is registered under that name. A new leader waits for all registered holders, including those that its
predecessor granted a lease a moment ago. The removal of a holder is valid only while the leader that decided it still
leads: the record names its term.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgpack

from palisade.fencing.messages import Hello
from palisade.fencing.registry import HolderStanding
from palisade.fencing.registry import registration_of as registration_of_hello
from palisade.fencing.release import Registration, Releases
from palisade.metastore.command_codec import decode_result, encode_command
from palisade.metastore.errors import StoreCorrupt, SystemConflict
from palisade.metastore.requests import SystemWrite
from palisade.metastore.system_records import TERM, SystemRecords
from palisade.node.fencing.lease_server import LeaseServer
from palisade.raftgroup.errors import NodeFailed, RaftError
from palisade.service.ports import GroupFace
from palisade.topology.records import NodeRecord, NodeStanding
from palisade.topology.view import node_of

log = logging.getLogger(__name__)

PREFIX = "holder/"
LOOK_S = 0.05
TIDY_S = 0.5


def registrations(records: SystemRecords) -> list[Registration]:
    """Raises StoreCorrupt."""
    found = []
    for record in records.with_prefix(PREFIX):
        if record.value:
            found.append(registration_of(record.name[len(PREFIX) :], record.value))
    return found


def registration_of(node: str, value: bytes) -> Registration:
    try:
        vault, lease_s, fences, *rest = msgpack.unpackb(value)
        (proceed_s,) = rest or (0.0,)
        return Registration(str(vault) and node, str(vault), float(lease_s), bool(fences), float(proceed_s))
    except (ValueError, TypeError, msgpack.UnpackException):
        raise StoreCorrupt(
            f"the record of holder {node} can't be read: {value[:64]!r}. A newer version may have written it: start "
            "that one on this node"
        ) from None


def value_of(registration: Registration) -> bytes:
    record = [registration.vault, registration.lease_s, registration.fences, registration.proceed_s]
    packed: bytes = msgpack.packb(record)
    return packed


class ActiveNodes:
    """The nodes in the logical topology, by incarnation; read again when the records have changed."""

    def __init__(self, records: SystemRecords) -> None:
        self._records = records
        self._version = -1
        self._known: dict[str, NodeRecord | None] = {}

    def record(self, node: str) -> NodeRecord | None:
        if self._version != self._records.version:
            self._version = self._records.version
            self._known.clear()
        if node not in self._known:
            self._known[node] = node_of(self._records, node)
        return self._known[node]

    def is_active(self, node: str, incarnation: int) -> bool:
        found = self.record(node)
        return found is not None and found.standing is NodeStanding.ACTIVE and found.incarnation == incarnation

    def is_gone(self, node: str) -> bool:
        found = self.record(node)
        return found is None or found.standing is NodeStanding.GONE


class HolderRegistry:
    """Writes the registrations that the lease server requests, and removes holders that have left and hold no lease."""

    def __init__(
        self,
        group: GroupFace,
        records: SystemRecords,
        active: ActiveNodes,
        lease_server: LeaseServer,
        now: Callable[[], float],
    ) -> None:
        self._group, self._records, self._active, self._lease_server, self._now = (
            group,
            records,
            active,
            lease_server,
            now,
        )
        self._tidy_at = 0.0

    async def run(self) -> None:
        """Until cancelled. Raises NodeFailed."""
        while True:
            await self._group.until_leads()
            await asyncio.sleep(LOOK_S)
            core = self._lease_server.core
            if not core.leads:
                continue
            try:
                await self._look(core, core.term)
            except NodeFailed:
                raise
            except RaftError as error:
                log.debug("holders not registered yet, retrying: error=%s", error)

    async def _look(self, core: Releases, term: int) -> None:
        """Ends with the term: after each write another node may lead, or this one again with other holders."""
        for hello, standing in list(self._lease_server.wanted.values()):
            if not _leads(core, term):
                return
            await self._register(core, term, hello, standing)
        if self._now() >= self._tidy_at:
            self._tidy_at = self._now() + TIDY_S
            await self._tidy(core, term)

    async def _register(self, core: Releases, term: int, hello: Hello, standing: HolderStanding) -> None:
        holder = hello.holder
        if not self._active.is_active(holder.node, holder.incarnation):
            return
        if standing is HolderStanding.OTHER and not core.registry.leave(holder.node, self._now()).now:
            return
        registration = registration_of_hello(hello)
        if await self._write(holder.node, value_of(registration), term) and _leads(core, term):
            core.registry.register(registration, self._now())
            log.info("holder registered: node=%s lease_s=%.3f", holder.node, hello.lease_s)
            if hello.proceed_s > self._lease_server.timing.proceed_s():
                log.warning(
                    "strict writes wait up to %.2f s for %s when it does not answer, and %.2f s for a node with the "
                    "times of this one: give all nodes the same --fence-s, --fence-drift and --fence-margin-s",
                    hello.proceed_s, holder.node, self._lease_server.timing.proceed_s(),
                )  # fmt: skip
            self._lease_server.registered(hello)

    async def _tidy(self, core: Releases, term: int) -> None:
        """Removes holders that have left the topology and certainly cannot serve; no write waits for them any more."""
        for registration in registrations(self._records):
            node = registration.node
            if not _leads(core, term):
                return
            if not self._active.is_gone(node):
                if node not in self._lease_server.wanted:
                    core.registry.stay(node)
                continue
            if not core.registry.leave(node, self._now()).now or not await self._write(node, b"", term):
                continue
            if _leads(core, term):
                core.registry.unregister(node, self._now())
                log.info("holder removed: node=%s", node)
                self._lease_server.unregistered(node)

    async def _write(self, node: str, value: bytes, term: int) -> bool:
        name = PREFIX + node
        request = SystemWrite(((TERM, term), (name, self._records.get(name).version)), ((name, value),))
        applied: Any = await self._group.propose(encode_command(request))
        try:
            decode_result(applied.result)
        except SystemConflict:
            return False
        return True


def _leads(core: Releases, term: int) -> bool:
    return core.leads and core.term == term
