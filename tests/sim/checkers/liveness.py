"""When the faults have stopped, everything makes progress within bounds.

A leader, every node in the topology and serving from its vault; then a response on each path at each node
(`probes.py`); then the end of every client, and the same state everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from palisade.catalog import keys
from palisade.metastore.requests import Range, prefix_end
from tests.sim.probes import Probes
from tests.sim.workload import Workload
from tests.sim.world import World
from tests.support.simulation import Stuck

COMES_BACK_S = 15.0
"""Time until every node serves without faults; and until all have the same state without clients. The slowest of 2,200
seeds of all scenarios took 7.5 s for both."""
ANSWERS_S = 10.0
"""Time until each path has been served afterwards: an election, and the waits of a new leader."""
ENDS_S = 20.0
"""Time for a client to end when asked to: three attempts, each with its own timeout."""
LOOK_S = 0.1
LOCKS = Range(keys.LOCKS, prefix_end(keys.LOCKS))


class Liveness:
    """Of a world without faults. `clients`: the present ones; a disaster may still come to its end, and others begin
    after it."""

    name = "liveness"

    def __init__(self, world: World, clients: Callable[[], Workload]) -> None:
        self._world, self._clients = world, clients

    def make_progress(self, stop: Callable[[], None]) -> float:
        """Until all is quiet: returns the seconds that it took. `stop`: called when all serve, and clients have to end.
        Raises Stuck, and Violation."""
        began = self._world.now
        self._until(self._world.all_serve, COMES_BACK_S, lambda: f"some do not serve: {self._state()}")
        stop()
        workload = self._clients()
        workload.stop()
        probes = Probes(workload)
        probes.start()
        self._until(lambda: probes.answered, ANSWERS_S, lambda: f"there is nothing that answers: {probes}")
        self._until(lambda: not workload.under_way(), ENDS_S, self._hanging)
        newest = self._world.revision
        self._until(lambda: not workload.lagging_watches(newest), ANSWERS_S, lambda: self._silent(newest))
        workload.hang_up()
        self._until(lambda: not workload.under_way(), ENDS_S, self._hanging)
        self._until(self._is_settled, COMES_BACK_S, lambda: f"not all have the same, released: {self._state()}")
        return self._world.now - began

    def _until(self, condition: Callable[[], bool], within_s: float, lacking: Callable[[], str]) -> None:
        """`lacking`: the message if the condition does not hold in time."""
        world = self._world
        end = world.now + within_s
        while not condition():
            if world.now >= end:
                self._stuck(f"after {within_s:g} s without faults {lacking()}")
            world.simulation.run_for(LOOK_S)
            self._clients().check()

    def _hanging(self) -> str:
        return f"clients have not come to an end: {', '.join(self._clients().under_way())}"

    def _silent(self, newest: int) -> str:
        return f"watches lack revisions up to {newest}: {self._clients().lagging_watches(newest)}"

    def _stuck(self, what: str) -> NoReturn:
        """Raises Violation; Stuck if there is one already, and no liveness violation is reported."""
        if not self._world.violations:
            self._world.fail(self.name, what)
        raise Stuck(what)

    def _is_settled(self) -> bool:
        hosts = list(self._world.hosts.values())
        members = [host for host in hosts if not host.follows]
        applied = {host.store.applied for host in members}
        revision = max(host.store.revision for host in members)
        return (
            len(applied) == 1
            and all(host.vault is not None and host.vault.revision == revision for host in hosts)
            and all(host.node.fencing.log.settled for host in members)
            and not any(host.store.range(LOCKS).kvs for host in members)
            and self._world.all_serve()
        )

    def _state(self) -> str:
        found = []
        for host in self._world.hosts.values():
            if host.node is None:
                found.append(f"{host.id} is down")
                continue
            holder = host.part.holder if host.part is not None else None
            life = host.node.topology.member.life
            group = f", {host.group.role.value} of {host.group.leader} in {host.group.term}" if host.group else ""
            why = "no vault" if holder is None else (holder.why or "serves")
            lv = host.vault.revision if host.vault is not None else 0
            found.append(f"{host.id} is {life.phase.value} ({life.waiting}){group}, {why}, LV {lv}")
        return "; ".join(found)
