"""One run from one seed: a safety phase with faults, then a liveness phase without them.

When the faults have stopped everything must make progress within bounds (`checkers/liveness.py`).

A run ends at the first violation. With a planted fault it may continue until all expected checkers have reported.
"""

from __future__ import annotations

import asyncio
import gc
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from math import inf

from palisade.metastore.requests import Range
from tests.sim.ambient import ambient
from tests.sim.backups import Base
from tests.sim.checkers.beyond_the_bound import EXCUSED
from tests.sim.checkers.liveness import Liveness
from tests.sim.checkers.registry import BEYOND_THE_BOUND, CHECKERS
from tests.sim.clients import Client
from tests.sim.cluster_nemesis import ClusterNemesis
from tests.sim.coverage.collecting import Coverage
from tests.sim.faults import SCENARIOS, Kind, Plan, Scenario, plan_of
from tests.sim.network import WINDOW_BYTES
from tests.sim.plants import planted
from tests.sim.streaming import LastingWatcher
from tests.sim.workload import Workload
from tests.sim.world import Settings, TimeIsUp, World
from tests.support.onlooker import Violation
from tests.support.raft_network import QUEUED_BYTES_MAX
from tests.support.simulation import Process, Stuck

BEGIN_S = 30.0
SLICE_S = 0.5


@dataclass(slots=True)
class Outcome:
    """`violation` empty: the run passed. `cpu_s` is not compared between two runs of a seed."""

    seed: int
    scenario: str
    plan: Plan
    violation: str = ""
    seen_by: tuple[str, ...] = ()
    """The checkers with violations, the first one first."""
    digest: str = ""
    simulated_s: float = 0.0
    liveness_s: float = 0.0
    cpu_s: float = 0.0
    operations: int = 0
    judged: bool = False
    """A history has been judged: the run came to its end, or to a restore."""
    coverage: dict[str, int] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        return bool(self.violation)

    def fails_as(self, other: Outcome) -> bool:
        """By the first checker with a violation; or both break down by themselves."""
        return self.failed and other.failed and self.seen_by[:1] == other.seen_by[:1]


@dataclass(frozen=True, slots=True)
class Until:
    """When a run ends before its own end: at the first violation, or, with `goes_on`, once all checkers in `reported`
    have reported one (empty: never); and at `s` of simulated time."""

    goes_on: bool = False
    reported: frozenset[str] = frozenset()
    s: float = inf


FIRST_VIOLATION = Until()
WHOLE = Until(goes_on=True)


def run_seed(
    seed: int,
    scenario: str = "many",
    plan: Plan | None = None,
    settings: Settings | None = None,
    plant: str | None = None,
    until: Until = FIRST_VIOLATION,
) -> Outcome:
    """`plan`: replaces the one drawn from the seed. `plant`: a fault of `plants` that is planted during the run."""
    with planted(plant):
        run = Run(seed, SCENARIOS[scenario], plan, settings)
        run.world.goes_on, run.world.wanted, run.world.until_s = until.goes_on, until.reported, until.s
        outcome = run.run()
    del run
    gc.collect()
    return outcome


def settings_of(seed: int, scenario: Scenario) -> Settings:
    settings = Settings.of(seed)
    return settings if scenario.drift is None else replace(settings, drift=scenario.drift)


class Run:
    def __init__(self, seed: int, scenario: Scenario, plan: Plan | None, settings: Settings | None) -> None:
        self.scenario = scenario
        self.world = World(seed, settings or settings_of(seed, scenario))
        self.world.excused = EXCUSED if scenario.drift else frozenset()
        members = tuple(host.id for host in self.world.members)
        self.faults_s = scenario.faults_s * self.world.settings.part
        self.plan = (
            plan if plan is not None else plan_of(seed, scenario, self.faults_s, members, tuple(self.world.hosts))
        )
        self.outcome = Outcome(seed, scenario.name, self.plan)
        self._looking = ExitStack()
        self._going = True
        """Clients continue."""
        self._lasting: tuple[Process, asyncio.Task[None]] | None = None
        """A client that outlives restores."""

    def run(self) -> Outcome:
        world, outcome = self.world, self.outcome
        began = time.process_time()
        gc.disable()
        settings = world.settings
        small_windows = settings.window_bytes < WINDOW_BYTES
        small_queues = settings.peer_bytes_max < QUEUED_BYTES_MAX
        wall = world.wall_offset_s
        with ambient(world.seed, lambda: world.now, wall, small_windows=small_windows, small_queues=small_queues):
            try:
                self._run()
            except TimeIsUp:
                pass
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
            outcome.violation, outcome.seen_by = str(world.violations[0]), world.seen_by
        outcome.coverage, outcome.operations = world.coverage, world.operations + len(world.history.operations())
        return outcome

    def _run(self) -> None:
        world = self.world
        world.has_segments, world.has_rare = self.scenario.segments, self.scenario.rare
        world.has_expiry = self.scenario.expiry
        world.takes_backups = any(fault.kind is Kind.BACKUP for fault in self.plan)
        world.restored, world.begins_again = self._restored, self._begin_again
        with self._looking:
            self._look_on()
            with self._unbroken():
                self._begin()
                self._safety()
                self.outcome.liveness_s = Liveness(world, lambda: self.workload).make_progress(self._go_no_further)
                self._read_at_the_end()
                for checker in world.checkers:
                    checker.settled()
            self._judge()

    # Histories: one, and one more for each restored backup

    def _look_on(self) -> None:
        """With new checkers."""
        beyond = BEYOND_THE_BOUND if self.scenario.drift else ()
        checkers = [make(self.world) for make in (*CHECKERS, *beyond, Coverage)]
        for checker in checkers:
            self._looking.enter_context(checker.looking())
        self.world.checkers = checkers

    def _judge(self) -> None:
        self.outcome.judged = True
        for checker in self.world.checkers:
            with self._unbroken():
                checker.ended()

    def _restored(self, base: Base) -> None:
        """The recorded history is complete; another one begins with `base`, and observers start anew."""
        self.workload.end()
        self._judge()
        self._looking.close()
        self._before = base, self.world.history
        self.world.go_on_from(base)
        self._look_on()
        for checker in self.world.checkers:
            checker.restored(base)

    def _begin_again(self) -> None:
        self.workload = self.workload.again(*self._before)
        self.workload.start()
        if self._lasting is not None:
            self.workload.look_after(*self._lasting)

    @contextmanager
    def _unbroken(self) -> Iterator[None]:
        """A world with a violation may break down; then the earlier violation counts."""
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
        if world.takes_backups:
            lasting = Client(world, "lasting")
            self._lasting = lasting.process, lasting.process.start(LastingWatcher(lasting, lambda: self._going).run())
            self.workload.look_after(*self._lasting)

    def _safety(self) -> None:
        world = self.world
        nemesis = ClusterNemesis(world, self.plan)
        nemesis.start()
        end = world.now + self.faults_s
        while world.now < end:
            world.simulation.run_for(SLICE_S)
            self.workload.check()
        world.note("-", "faults stop")
        nemesis.stop()

    def _go_no_further(self) -> None:
        self._going = False

    def _read_at_the_end(self) -> None:
        for host in self.world.members:
            self.world.history.final(host.id, host.store.range(Range(b"\0", b"\0")))
