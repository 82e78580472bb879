"""The physical topology as a component of a node: its SWIM socket, its seeds and its advertised tags."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from collections.abc import Iterable

from palisade.recovery.lifecycle import Component
from palisade.topology.admission_rules import Physical, Presence
from palisade.topology.own_node import OwnNode
from palisade.topology.records import NodeRole
from palisade.topology.seed_sources import SeedSearch
from palisade.topology.swim.protocol import Change, Swim
from palisade.topology.swim.record import Record, SwimState, sorted_tags
from palisade.topology.swim.udp import SwimSocket
from palisade.topology.swim.wire import RUMOUR_BYTES_MAX, record_bytes

log = logging.getLogger(__name__)

INSTANCE_BYTES = 8
FOREIGN_S = 10.0
"""Time for which a node searches its own cluster while some of its seeds belong to another one."""
LOG_LEVELS = {
    SwimState.ALIVE: logging.INFO,
    SwimState.SUSPECT: logging.DEBUG,
    SwimState.DEAD: logging.WARNING,
    SwimState.LEFT: logging.INFO,
}


class PhysicalTopology(Component):
    """`instance` distinguishes this process from all others that ever had the node's name. The tags carry `role` and
    addresses, or, on a node that waits for initialization, its entry in a plan (`member`)."""

    def __init__(self, own: OwnNode, role: NodeRole, member: str | None = None) -> None:
        self.instance = secrets.token_hex(INSTANCE_BYTES)
        self._listening = own.swim_listening
        self._cluster = own.cluster
        self._started_at = 0.0
        clients = {name: address for name, address in own.addresses.items() if name != "peer"}
        tags = {"member": member} if member else {"role": role.value, **clients}
        record = Record(own.id, own.swim_address, self.instance, tags=sorted_tags(tags))
        self.swim = Swim(
            record,
            own.seeds,
            random.SystemRandom(),
            0.0,
            size_of=record_bytes,
            rumour_bytes_max=RUMOUR_BYTES_MAX,
        )
        self.socket = SwimSocket(self.swim, own.cluster, self._changed)
        self._search = SeedSearch(own.seed_sources, lambda: len(self.swim.live()) < 2, self.swim.replace_found)
        self._searching: asyncio.Task[None] | None = None
        self._has_sources = bool(own.seed_sources)

    async def start(self) -> None:
        """Raises OSError if the port cannot be bound."""
        self._started_at = asyncio.get_running_loop().time()
        await self.socket.start(self._listening.host, self._listening.port)
        if self._has_sources:
            self._searching = asyncio.create_task(self._search.run())

    async def stop(self) -> None:
        if self._searching is not None:
            self._searching.cancel()
            await asyncio.gather(self._searching, return_exceptions=True)
        await self.socket.leave()
        self.socket.close()

    def add_seeds(self, addresses: Iterable[str]) -> None:
        self.swim.add_seeds(addresses)

    def settle(self) -> None:
        """Call when the cluster has admitted this node: later processes with its name do not supersede it."""
        self.swim.settle()

    def presences(self) -> Physical:
        """By name; includes nodes that are gone until they are forgotten."""
        return {each.name: Presence(each.instance, each.is_live) for each in self.swim.records()}

    def records(self) -> list[Record]:
        return self.swim.records()

    def refusal(self) -> str | None:
        """Why this node must stop, else None: another process has its name, or its seeds belong to another cluster."""
        return self.swim.duplicate or self._wrong_cluster()

    def _wrong_cluster(self) -> str | None:
        """Not None once all seeds belong to another cluster, or some of them and `FOREIGN_S` has passed without a node
        of this cluster."""
        foreign = {seed: self.socket.strangers[seed] for seed in self.swim.seeds if seed in self.socket.strangers}
        if not foreign or len(self.swim.live()) > 1:
            return None
        late = asyncio.get_running_loop().time() - self._started_at > FOREIGN_S
        if len(foreign) < len(self.swim.seeds) and not late:
            return None
        said = "; ".join(f"{seed}: {reason}" for seed, reason in sorted(foreign.items()))
        return (
            f"the seeds belong to another cluster than {self._cluster} ({said}), and no node of {self._cluster} was "
            "found: correct --cluster, or the addresses given with --seeds or --join"
        )

    def _changed(self, change: Change) -> None:
        now, before = change.now, change.before
        if before is not None and (before.state, before.instance) == (now.state, now.instance):
            return
        state = now.state.name.lower()
        log.log(LOG_LEVELS[now.state], "node state changed: node=%s address=%s state=%s", now.name, now.address, state)
