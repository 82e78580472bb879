"""Nodes that run SWIM over a simulated network and clock: a run is a pure function of its seed.

Every datagram goes through the real wire format. The network may lose, repeat, delay and reorder; links may be cut in
one direction; nodes may pause (arriving datagrams wait in their socket), crash, and return.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from palisade.topology.swim.messages import Message
from palisade.topology.swim.protocol import Change, Swim
from palisade.topology.swim.record import Record, SwimState
from palisade.topology.swim.timing import SwimTiming
from palisade.topology.swim.wire import RUMOUR_BYTES_MAX, Stranger, Wire, record_bytes
from tests.support.simulation import Simulation


@dataclass
class SimNode:
    swim: Swim
    wire: Wire
    address: str
    running: bool = True
    paused_until: float = 0.0
    inbox: list[tuple[str, bytes]] = field(default_factory=list)
    sent: int = 0
    sent_bytes: int = 0
    changes: list[tuple[float, Change]] = field(default_factory=list)
    tick: int = 0


class SwimWorld:
    def __init__(self, seed: int, timing: SwimTiming | None = None) -> None:
        self.simulation = Simulation(seed)
        self.chance = self.simulation.random
        self.timing = timing or SwimTiming()
        self.nodes: dict[str, SimNode] = {}
        """By address."""
        self.loss = 0.0
        self.repeats = 0.0
        self.latency_s = (0.001, 0.02)
        self.cut: set[tuple[str, str]] = set()
        self._instances = itertools.count(1)

    @property
    def now(self) -> float:
        return self.simulation.now

    # Nodes.

    def start(self, name: str, seeds: Iterable[str] = (), address: str | None = None, cluster: str = "c1") -> SimNode:
        address = address or f"{name}:7700"
        instance = f"i{next(self._instances):04}-{self.chance.randrange(1 << 30):08x}"
        own = Record(name, address, instance)
        swim = Swim(
            own, seeds, self.chance, self.now, size_of=record_bytes, rumour_bytes_max=RUMOUR_BYTES_MAX,
            timing=self.timing,
        )  # fmt: skip
        node = SimNode(swim, Wire(cluster), address)
        self.nodes[address] = node
        self._tick(node)
        return node

    def start_many(self, count: int) -> list[SimNode]:
        """All know only the first one."""
        return [self.start(f"n{number}", ["n1:7700"]) for number in range(1, count + 1)]

    def crash(self, node: SimNode) -> None:
        node.running = False
        node.tick += 1

    def pause(self, node: SimNode, seconds: float) -> None:
        node.paused_until = self.now + seconds
        self.simulation.after(seconds, lambda: self._resume(node))

    def _resume(self, node: SimNode) -> None:
        """As in a real process: the timer and waiting datagrams are handled in any order."""
        if self.chance.randrange(2):
            self._tick(node)
        for source, datagram in node.inbox:
            self._handle(node, source, datagram)
        node.inbox.clear()
        self._tick(node)

    # Time.

    def run(self, seconds: float) -> None:
        self.simulation.run_for(seconds)

    def run_until(self, holds: Callable[[], bool], within_s: float) -> float:
        """Returns the time that it took. Fails if it does not hold in time."""
        began = self.now
        self.simulation.run_until(holds, within_s=within_s)
        return self.now - began

    def _tick(self, node: SimNode) -> None:
        if not node.running or self.now < node.paused_until:
            return
        node.tick += 1
        turn = node.tick
        due = node.swim.tick(self.now)
        self._flush(node)
        self.simulation.after(max(due - self.now, 1e-6), lambda: self._tick(node) if node.tick == turn else None)

    # Network.

    def _flush(self, node: SimNode) -> None:
        outbox, node.swim.outbox = node.swim.outbox, []
        for address, message in outbox:
            self._transmit(node, address, message)
        node.changes += [(self.now, change) for change in node.swim.changes]
        node.swim.changes = []

    def _transmit(self, node: SimNode, address: str, message: Message) -> None:
        datagram = node.wire.encode(message)
        node.sent += 1
        node.sent_bytes += len(datagram)
        copies = 1 + (self.chance.random() < self.repeats)
        for _ in range(copies):
            if (node.address, address) in self.cut or self.chance.random() < self.loss:
                continue
            delay = self.chance.uniform(*self.latency_s)
            self.simulation.after(delay, lambda: self._deliver(node.address, address, datagram))

    def _deliver(self, source: str, address: str, datagram: bytes) -> None:
        node = self.nodes.get(address)
        if node is None or not node.running:
            return
        if self.now < node.paused_until:
            node.inbox.append((source, datagram))
        else:
            self._handle(node, source, datagram)

    def _handle(self, node: SimNode, source: str, datagram: bytes) -> None:
        message = node.wire.decode(datagram)
        assert not isinstance(message, Stranger)
        node.swim.receive(message, source, self.now)
        self._flush(node)

    # State.

    def running(self) -> list[SimNode]:
        return [node for node in self.nodes.values() if node.running]

    def agreed(self) -> bool:
        """All running nodes know all running nodes as alive, with their current state, and no other node."""
        wanted = sorted((node.swim.own.name, node.swim.own.instance) for node in self.running())
        return all(self.view(node) == wanted for node in self.running())

    def view(self, node: SimNode) -> list[tuple[str, str]]:
        return [(each.name, each.instance) for each in node.swim.live() if each.state is SwimState.ALIVE]

    def everybody_sees(self, name: str, *states: SwimState) -> bool:
        records = [node.swim.get(name) for node in self.running() if node.swim.own.name != name]
        return all(record is not None and record.state in states for record in records)

    def partition(self, ones: Iterable[SimNode], others: Iterable[SimNode]) -> None:
        others = list(others)
        for one in ones:
            for other in others:
                self.cut |= {(one.address, other.address), (other.address, one.address)}
