"""One run from one seed: a safety phase, in which things go wrong, then a liveness phase, in which everything heals.

When the faults have stopped everything has to make progress within a bound: a leader, everybody in the topology and
serving from its vault, a write through every member, the same state everywhere.

A run ends with what the first checker says. Where a fault is planted it may go on, so that it is seen who else sees it.
"""

from __future__ import annotations

import gc
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from catalog import keys
from metastore.requests import Put, Range, prefix_end
from tests.sim.ambient import ambient
from tests.sim.checkers.beyond_the_bound import EXCUSED
from tests.sim.checkers.registry import BEYOND_THE_BOUND, CHECKERS, LIVENESS
from tests.sim.clients import Client
from tests.sim.coverage.collecting import Coverage
from tests.sim.faults import SCENARIOS, Plan, Scenario, plan_of
from tests.sim.nemesis import Nemesis
from tests.sim.plants import planted
from tests.sim.seen import Ok, Path
from tests.sim.workload import Workload
from tests.sim.world import Settings, World
from tests.support.onlooker import Violation
from tests.support.simulation import Stuck

BEGIN_S = 30.0
LIVENESS_S = 60.0
"""How long it may take until everything goes on when nothing goes wrong any more."""
BROKEN_S = 15.0
"""The same where something was seen already: nothing is said of liveness then."""
SLICE_S = 0.5
LOCKS = Range(keys.LOCKS, prefix_end(keys.LOCKS))


@dataclass(slots=True)
class Outcome:
    """`violation` empty: all is well. `cpu_s` is no part of what two runs of a seed have in common."""

    seed: int
    scenario: str
    plan: Plan
    violation: str = ""
    told: tuple[str, ...] = ()
    """The checkers that have seen something, the first one first."""
    digest: str = ""
    simulated_s: float = 0.0
    liveness_s: float = 0.0
    cpu_s: float = 0.0
    operations: int = 0
    coverage: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.violation)


def run_seed(
    seed: int,
    scenario: str = "many",
    plan: Plan | None = None,
    settings: Settings | None = None,
    plant: str | None = None,
    goes_on: bool = False,
) -> Outcome:
    """`plan`: instead of the one that the seed makes. `plant`: a fault of `plants` to be planted. `goes_on`: also when
    something was seen."""
    with planted(plant):
        run = Run(seed, SCENARIOS[scenario], plan, settings)
        run.world.goes_on = goes_on
        return run.run()


def settings_of(seed: int, scenario: Scenario) -> Settings:
    settings = Settings.of(seed)
    return settings if scenario.drift is None else replace(settings, drift=scenario.drift)


class Run:
    def __init__(self, seed: int, scenario: Scenario, plan: Plan | None, settings: Settings | None) -> None:
        self.scenario = scenario
        self.world = World(seed, settings or settings_of(seed, scenario))
        self.world.excused = EXCUSED if scenario.drift else frozenset()
        members = tuple(host.id for host in self.world.members)
        self.plan = plan if plan is not None else plan_of(seed, scenario, members, tuple(self.world.hosts))
        self.outcome = Outcome(seed, scenario.name, self.plan)

    def run(self) -> Outcome:
        world, outcome = self.world, self.outcome
        began = time.process_time()
        gc.disable()
        with ambient(world.seed, lambda: world.now):
            try:
                self._run()
            except (Violation, Stuck) as error:
                outcome.violation = str(error)
            except Exception as error:
                outcome.violation = "".join(traceback.format_exception(error))
            finally:
                world.close()
                gc.enable()
        outcome.cpu_s = time.process_time() - began
        outcome.digest, outcome.simulated_s, outcome.trace = world.digest(), world.now, world.lines
        if world.violations:
            outcome.violation, outcome.told = str(world.violations[0]), world.told
        outcome.coverage, outcome.operations = world.coverage, len(world.history.operations())
        return outcome

    def _run(self) -> None:
        world = self.world
        beyond = BEYOND_THE_BOUND if self.scenario.drift else ()
        world.checkers = [make(world) for make in (*CHECKERS, *beyond, Coverage)]
        with ExitStack() as stack:
            for checker in world.checkers:
                stack.enter_context(checker.looking())
            with self._going_on():
                self._begin()
                self._safety()
                self._make_progress()
                for checker in world.checkers:
                    checker.settled()
            for checker in world.checkers:
                with self._going_on():
                    checker.ended()

    @contextmanager
    def _going_on(self) -> Iterator[None]:
        """A world in which something is broken may break down; then what was seen before counts."""
        try:
            yield
        except Exception:
            if not self.world.goes_on or not self.world.violations:
                raise

    def _begin(self) -> None:
        world = self.world
        world.start()
        world.simulation.run_until(world.all_serve, within_s=BEGIN_S)
        self.workload = Workload(world)
        process = self.workload.clients[0].process
        world.strict_from = world.simulation.run(process, self.workload.prepare(), within_s=BEGIN_S)
        self.workload.start()

    def _safety(self) -> None:
        world = self.world
        nemesis = Nemesis(world, self.plan)
        nemesis.start()
        end = world.now + self.scenario.faults_s
        while world.now < end:
            world.simulation.run_for(SLICE_S)
            self.workload.check()
        world.note("-", "faults stop")
        nemesis.stop()

    # Liveness

    def _make_progress(self) -> None:
        world = self.world
        began = world.now
        self._until(world.all_serve, "everybody serves")
        client = Client(world, "prober")
        for host in world.members:
            self._write_at(client, host)
        self.workload.stop()
        self._until(self._is_settled, "everybody has the same, released")
        self.outcome.liveness_s = world.now - began
        self._read_at_the_end()

    def _until(self, condition: Any, what: str) -> None:
        world = self.world
        end = world.now + (BROKEN_S if world.violations else LIVENESS_S)
        while not condition():
            if world.now >= end:
                self._stuck(f"{LIVENESS_S:g} s after the faults, not {what}")
            world.simulation.run_for(0.1)
            self.workload.check()

    def _write_at(self, client: Client, host: Any) -> None:
        request = Put(b"s/probe", host.id.encode())

        async def write() -> bool:
            for _ in range(10):
                outcome = await client.ask(host, Path.MEMBER, request, lambda node: node.service.write(request))
                if isinstance(outcome, Ok):
                    return True
            return False

        if not self.world.simulation.run(client.process, write(), within_s=LIVENESS_S):
            self._stuck(f"no write through {host.id} succeeds")

    def _stuck(self, what: str) -> NoReturn:
        """Raises Violation; Stuck where it is one already, and nothing is said of liveness."""
        if not self.world.violations:
            self.world.fail(LIVENESS, f"{what}: {self._state()}")
        raise Stuck(what)

    def _is_settled(self) -> bool:
        hosts = list(self.world.hosts.values())
        members = [host for host in hosts if not host.follows]
        applied = {host.store.applied for host in members}
        revision = max(host.store.revision for host in members)
        return (
            len(applied) == 1
            and all(host.vault is not None and host.vault.revision == revision for host in hosts)
            and all(host.node.fencing.log.settled for host in members)
            and not any(host.store.range(LOCKS).kvs for host in members)
            and self.world.all_serve()
        )

    def _read_at_the_end(self) -> None:
        for host in self.world.members:
            self.world.history.final(host.id, host.store.range(Range(b"\0", b"\0")))

    def _state(self) -> str:
        found = []
        for host in self.world.hosts.values():
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
