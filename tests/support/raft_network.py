"""The network between simulated members: connections with a handshake, and all their faults.

A connection delivers in order, as TCP does, unless `reorder` is set: the group must survive that too, since a message
of a broken connection may be read after one of the next connection. A blocked direction drops all bytes; after a while
the connection breaks, as it does without keepalives. Bytes accumulate for a peer that reads slowly or not at all;
beyond a bound the sender closes the connection, as `raftgroup/peer_connection.py` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgpack

from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.peer_connection import TransportLimits
from palisade.raftgroup.ports import MessageReceiver
from tests.support.simulation import Process, Simulation

QUEUED_BYTES_MAX = TransportLimits().queued_bytes_max
SMALL_PEER_BYTES_MAX = 2048


@dataclass(slots=True)
class Weather:
    """`delay_s`: the shortest and the longest latency. The rest are probabilities for each message; only messages of
    consensus are repeated, never a proposal on its way to the leader: connections repeat nothing (`ports.Peers`)."""

    delay_s: tuple[float, float] = (0.0002, 0.002)
    lose: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0


class Connection:
    """Between two endpoints, the dialler first."""

    def __init__(self, first: SimPeers, second: SimPeers) -> None:
        self.ends = (first, second)
        self.open = True
        self.last_arrival = {first.member: 0.0, second.member: 0.0}
        self.under_way = {first.member: 0, second.member: 0}
        """Bytes that were sent to each end and are not read yet."""
        self.welcomed: set[str] = set()

    def other(self, end: SimPeers) -> SimPeers:
        return self.ends[1] if end is self.ends[0] else self.ends[0]


class Network:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.weather = Weather()
        self.blocked: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        """Seconds that are added to the latency of a direction."""
        self.swallowing: dict[tuple[str, str], list[Callable[[], None]]] = {}
        """Callbacks for the first message that a blocked direction drops."""
        self.intercept: Callable[[str, str, int, Any], bool] = lambda *_: True
        """(from, to, kind, body) -> whether to carry it: for tests that drop or hold one certain message."""
        self.overhear: Callable[[str, str, int, Any], None] = lambda *_: None
        """Called with every message when it leaves its node, whatever happens to it later."""
        self.queued_bytes_max = QUEUED_BYTES_MAX
        self._endpoints: dict[str, SimPeers] = {}
        self.delivered = 0

    def block(self, sender: str, receiver: str) -> None:
        self.blocked.add((sender, receiver))

    def isolate(self, member: str) -> None:
        for other in self._endpoints:
            if other != member:
                self.blocked |= {(member, other), (other, member)}

    def heal(self) -> None:
        self.blocked.clear()
        self.slow.clear()
        self.swallowing.clear()
        self.weather = Weather()

    def endpoint(self, member: str) -> SimPeers | None:
        peers = self._endpoints.get(member)
        return peers if peers is not None and peers.listening else None

    def attach(self, peers: SimPeers) -> None:
        self._endpoints[peers.member] = peers

    def passes(self, sender: str, receiver: str) -> bool:
        """Of a message that is sent now."""
        if (sender, receiver) not in self.blocked:
            return True
        for hear in self.swallowing.pop((sender, receiver), ()):
            hear()
        return False

    def way(self, sender: str, receiver: str) -> float:
        """The latency of one message, in seconds."""
        return self.delay() + self.slow.get((sender, receiver), 0.0)

    def delay(self) -> float:
        shortest, longest = self.weather.delay_s
        return shortest + (longest - shortest) * self.simulation.random.random()


class SimPeers:
    """A `raftgroup.ports.Peers`. `process` is the node's; killing it closes nothing by itself (`vanish` does)."""

    def __init__(self, network: Network, member: str, process: Process) -> None:
        self.network = network
        self.member = member
        self.process = process
        self.listening = False
        self.receiver: MessageReceiver
        self.connections: dict[str, Connection] = {}
        self._half_open: dict[Connection, None] = {}
        """The other side has accepted, this one does not know it yet: when it is gone they break as well."""
        self._wanted: dict[str, str] = {}
        self._dials = False

    # Peers.

    async def start(self, receiver: MessageReceiver) -> None:
        self.receiver = receiver
        self.listening = True
        self.network.attach(self)
        self._dial_missing()

    async def close(self) -> None:
        self.vanish(within_s=0.01)

    def set_members(self, addresses: Mapping[str, str]) -> None:
        self._wanted = dict(addresses)
        for member in [member for member in self.connections if member not in addresses]:
            self._break(self.connections[member], within_s=0.01)
        self._dial_soon()

    def connected(self) -> frozenset[str]:
        return frozenset(self.connections)

    def answering(self) -> frozenset[str]:
        return self.connected()

    def queued_bytes(self, member: str) -> int:
        connection = self.connections.get(member)
        return connection.under_way[member] if connection is not None else 0

    def send(self, member: str, kind: int, body: Any) -> bool:
        connection = self.connections.get(member)
        if connection is None or not connection.open:
            return False
        network = self.network
        network.overhear(self.member, member, int(kind), body)
        packed = msgpack.packb(body)
        if not network.intercept(self.member, member, int(kind), body):
            return True
        if not network.passes(self.member, member):
            self._break(connection, within_s=0.3 + 2.0 * self._lot())
            return True
        if connection.under_way[member] > network.queued_bytes_max:
            self._give_up(connection)
            return False
        weather = network.weather
        if weather.lose and self._lot() < weather.lose:
            return True
        self._carry(connection, member, int(kind), packed)
        if weather.repeat and kind < MessageKind.FORWARD and self._lot() < weather.repeat:
            self._carry(connection, member, int(kind), packed, late=True)
        return True

    def _give_up(self, connection: Connection) -> None:
        """The other end does not read."""
        connection.open = False
        self._break(connection, within_s=0.01)

    def _carry(self, connection: Connection, member: str, kind: int, packed: bytes, *, late: bool = False) -> None:
        """Pieces of snapshots are large in relation to all else here; they are not in relation to the bound of a real
        node."""
        network = self.network
        counted = 0 if kind == MessageKind.SNAPSHOT else len(packed)
        connection.under_way[member] += counted
        arrival = network.simulation.now + network.way(self.member, member)
        late = late or (network.weather.reorder > 0 and self._lot() < network.weather.reorder)
        if late:
            arrival += 0.3 * self._lot() ** 2
        else:
            arrival = max(arrival, connection.last_arrival[member])
            connection.last_arrival[member] = arrival
        end = connection.other(self)

        def read() -> None:
            connection.under_way[member] -= counted
            end._take(self.member, kind, packed)

        def arrive() -> None:
            if end.listening and (connection.open or late) and network.passes(self.member, member):
                network.delivered += 1
                end.process.call(read)
            else:
                connection.under_way[member] -= counted

        network.simulation.after(arrival - network.simulation.now, arrive)

    def _take(self, sender: str, kind: int, packed: bytes) -> None:
        if self.listening:
            self.receiver.on_message(sender, kind, msgpack.unpackb(packed, strict_map_key=False, use_list=True))

    # Connections.

    def _dial_soon(self) -> None:
        if self.listening and not self._dials and not self.process.dead:
            self._dials = True
            self.process.loop.call_later(0.05 + 0.2 * self._lot(), self._dial_missing)

    def _dial_missing(self) -> None:
        """Repeatedly, as long as a connection is missing."""
        self._dials = False
        missing = [member for member in self._wanted if member not in self.connections]
        for member in missing:
            if self.listening and self._is_mine_to_dial(member):
                self._dial(member)
        if missing:
            self._dial_soon()

    def _is_mine_to_dial(self, member: str) -> bool:
        """One of the two dials, so that two connections never meet; a peer that is not expected yet cannot be waited
        for."""
        other = self.network.endpoint(member)
        return self.member < member or other is None or self.member not in other._wanted

    def _dial(self, member: str) -> None:
        network = self.network
        other = network.endpoint(member)
        both_ways = network.passes(self.member, member) and network.passes(member, self.member)
        if other is None or not both_ways:
            return
        greeting = self.receiver.greeting()
        network.simulation.after(network.delay(), lambda: other.process.call(other._greeted, self, greeting))

    def _greeted(self, dialler: SimPeers, greeting: dict[str, Any]) -> None:
        """The accepting side decides first."""
        if not self.listening or dialler.member in self.connections or not dialler.listening:
            return
        network = self.network
        reason = self.receiver.greet(greeting)
        if reason is not None:
            network.simulation.after(
                network.delay(), lambda: dialler.process.call(dialler._refused, self.member, reason)
            )
            return
        own = self.receiver.greeting()
        connection = Connection(dialler, self)
        self.connections[dialler.member] = connection
        dialler._half_open[connection] = None
        self.receiver.on_connected(dialler.member, greeting)
        network.simulation.after(network.delay(), lambda: dialler.process.call(dialler._accepted, connection, own))

    def _refused(self, member: str, reason: str) -> None:
        if self.listening:
            self.receiver.on_refused(member, reason)

    def _accepted(self, connection: Connection, greeting: dict[str, Any]) -> None:
        other = connection.other(self)
        self._half_open.pop(connection, None)
        if not self.listening or not connection.open:
            return
        reason = self.receiver.greet(greeting)
        if reason is not None or other.member in self.connections:
            if reason is not None:
                other.process.call(other._refused, self.member, reason)
            self._break(connection, within_s=0.01)
            return
        self.connections[other.member] = connection
        self.receiver.on_connected(other.member, greeting)

    def vanish(self, *, within_s: float) -> None:
        """This end is gone: the others detect that within that time."""
        self.listening = False
        for connection in [*self.connections.values(), *self._half_open]:
            self._break(connection, within_s=within_s)
        self.connections.clear()
        self._half_open.clear()

    def _break(self, connection: Connection, *, within_s: float) -> None:
        for end in connection.ends:
            delay = within_s * self._lot()
            self.network.simulation.after(delay, lambda end=end: end.process.call(end._broken, connection))

    def _broken(self, connection: Connection) -> None:
        connection.open = False
        self._half_open.pop(connection, None)
        other = connection.other(self)
        if self.connections.get(other.member) is connection:
            del self.connections[other.member]
            if self.listening:
                self._dial_soon()
                self.receiver.on_disconnected(other.member)

    def _lot(self) -> float:
        return self.network.simulation.random.random()
