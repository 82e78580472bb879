"""A small cluster of the simulator for tests that script what happens, in place of a plan of faults and a workload.

The nodes are those of every simulation; time, network and disks are simulated. A test pauses, kills and writes by
itself, and looks at the nodes from outside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import Command, Put
from palisade.node.config import FenceTimes
from palisade.service.callers import THIS_NODE
from palisade.vault.regions import Mode, Policy, Region, pack_region, region_key
from tests.sim.ambient import ambient
from tests.sim.node import Host
from tests.sim.world import Settings, World
from tests.support.raft_rules import RULES

SHORT = FenceTimes(lease_s=0.5, margin_s=0.05)
BEGIN_S = 30.0


class Script:
    """`leader` is the leader at the beginning, `others` are the other members."""

    def __init__(self, world: World) -> None:
        self.world, self.simulation = world, world.simulation
        world.start()
        self.run_until(lambda: world.leader() is not None, BEGIN_S)
        leader = world.leader()
        assert leader is not None
        self.leader, self.others = leader, [host for host in world.members if host is not leader]

    @property
    def timing(self) -> FenceTiming:
        return self.leader.part.timing  # type: ignore[no-any-return]

    def write(self, request: Command, at: Host | None = None, within_s: float = 20.0) -> float:
        """The time until it was acknowledged."""
        began, task = self.simulation.now, self.begin(request, at)
        self.run_until(task.done, within_s)
        task.result()
        return self.simulation.now - began

    def begin(self, request: Command, at: Host | None = None) -> asyncio.Task[Any]:
        host = at or self.leader
        return self.process(host).start(host.node.key_values.write(request, timeout_s=20.0, caller=THIS_NODE))

    def make_strict(self, prefix: str) -> None:
        region = Region(prefix, prefix.encode() + b"/", Mode.STRICT, Policy.FAIL_CLOSED)
        self.write(Put(region_key(prefix), pack_region(region)))

    def process(self, host: Host) -> Any:
        assert host.process is not None
        return host.process

    def run_for(self, seconds: float) -> None:
        self.simulation.run_for(seconds)

    def run_until(self, condition: Callable[[], bool], within_s: float) -> None:
        self.simulation.run_until(condition, within_s=within_s)


@contextmanager
def scripted(seed: int = 1, **settings: Any) -> Iterator[Script]:
    """When all nodes serve. Members only, unless `settings` say otherwise."""
    with led(seed, **settings) as script:
        script.run_until(script.world.all_serve, BEGIN_S)
        yield script


@contextmanager
def led(seed: int = 1, *, segments: bool = False, **settings: Any) -> Iterator[Script]:
    """As soon as there is a leader. `segments`: some nodes are data nodes (`world.data_nodes`)."""
    world = World(seed, Settings(**({"followers": 0, "fences": SHORT} | settings)))
    world.has_segments = segments
    world.checkers = [make(world) for make in RULES]
    try:
        with ambient(seed, lambda: world.now, world.wall_offset_s):
            yield Script(world)
    finally:
        world.close()
