"""The physical topology as a component of a node: its SWIM socket, its seeds and its advertised tags."""

from __future__ import annotations

import logging
import random
import secrets
from collections.abc import Iterable

from palisade.recovery.lifecycle import Component
from palisade.topology.admission_rules import Physical, Presence
from palisade.topology.own_node import OwnNode
from palisade.topology.records import NodeRole
from palisade.topology.swim.protocol import Change, Swim
from palisade.topology.swim.record import Record, SwimState, sorted_tags
from palisade.topology.swim.udp import SwimSocket
from palisade.topology.swim.wire import RUMOUR_BYTES_MAX, record_bytes

log = logging.getLogger(__name__)

INSTANCE_BYTES = 8
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

    async def start(self) -> None:
        """Raises OSError if the port cannot be bound."""
        await self.socket.start(self._listening.host, self._listening.port)

    async def stop(self) -> None:
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

    def duplicate(self) -> str | None:
        """The error text if another process has this node's name, in which case this node must stop; else None."""
        return self.swim.duplicate

    def _changed(self, change: Change) -> None:
        now, before = change.now, change.before
        if before is not None and (before.state, before.instance) == (now.state, now.instance):
            return
        state = now.state.name.lower()
        log.log(LOG_LEVELS[now.state], "node state changed: node=%s address=%s state=%s", now.name, now.address, state)
