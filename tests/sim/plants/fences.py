"""Faults of fencing: grants, releases, permitted reads, and procedures that rely on them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from palisade.catalog.engine import ProcedureEngine
from palisade.catalog.operations.all import KINDS
from palisade.catalog.plan import CatalogPlan
from palisade.catalog.procedures import Procedure, ProcedureState
from palisade.fencing.lease import FenceLease
from palisade.fencing.registry import Holding, Registry
from palisade.fencing.release import Releases
from palisade.fencing.timing import FenceTiming
from palisade.metastore.requests import Range
from palisade.metastore.results import RangeResult
from palisade.node.fencing.fencing_component import FencingComponent
from palisade.node.fencing.lease_client import LeaseClient
from palisade.node.fencing.lease_endpoint import LeaseEndpoint
from palisade.node.fencing.lease_server import LeaseServer
from palisade.node.fencing.vault_gate import VaultGate
from palisade.service.callers import UNRESTRICTED
from palisade.service.catalog import Catalog, CatalogOutcome
from palisade.service.catalog_store import NodeStore
from palisade.service.pending_write import ReleaseWaiters, StrictResponses
from palisade.service.strict_changes import StrictBatch, StrictLog
from palisade.vault.staging import Row, StagedChange, VaultStaging
from tests.sim.faults import Fault, Kind
from tests.sim.machine import SimMachine
from tests.sim.plants.plant import (
    CALM,
    HOLDERS_PAUSED,
    LEADERS_CUT_OFF,
    MEMBER_CUT_OFF,
    Patch,
    Stage,
    caught_by,
    with_faults,
)
from tests.support.simulation import Process

FOLLOWER_CUT_OFF = with_faults(*(Fault(2.0 + 5.0 * number, Kind.ISOLATE, "f1", "n1", 3.5) for number in range(4)))
WALL_CLOCK_SET = with_faults(
    *(
        fault
        for at in (3.0, 11.0)
        for fault in (Fault(at, Kind.WALL_STEP, "f1", "n1", amount=0.8), Fault(at + 1.5, Kind.PAUSE, "f1", "n1", 6.0))
    )
)
FOLLOWER_STOPS = with_faults(*(Fault(2.0 + 4.0 * number, Kind.STOP, "f1", "n1", 1.0) for number in range(5)))

FOLLOWER_HEARS_NOTHING = with_faults(Fault(4.0, Kind.ONE_WAY, "leader", "f1", 12.0))
"""And its messages arrive all the time."""


@caught_by("fenced reads", on=FOLLOWER_CUT_OFF)
def strict_writes_answered_at_commit(patch: Patch) -> None:
    async def at_once(self: ReleaseWaiters, revision: int, timeout_s: float) -> bool:
        return True

    patch.setattr(ReleaseWaiters, "when", lambda self, revision, until, on_reached: on_reached(True))
    patch.setattr(ReleaseWaiters, "until", at_once)


@caught_by("lease safety", "fenced reads", on=FOLLOWER_CUT_OFF)
def releases_without_a_verdict(patch: Patch) -> None:
    """No holder is waited for."""
    patch.setattr(Registry, "safe_up_to", lambda self, now, latest: latest)
    patch.setattr(Registry, "blocks", lambda self, revision, now, latest: False)


@caught_by("lease safety", on=WALL_CLOCK_SET)
def leases_by_the_wall_clock(patch: Patch) -> None:
    """A node uses a clock that can be set."""

    class Wall:
        def __init__(self, process: Process) -> None:
            self._process, self._began_s = process, process.wall_offset_s
            self.wall_ns = process.wall_ns

        def now(self) -> float:
            return self._process.now() + self._process.wall_offset_s - self._began_s

    def machine(self: SimMachine, config: Any, world: Any, disk: Any, process: Process, start: int) -> None:
        begin(self, config, world, disk, process, start)
        self.clock = Wall(process)

    begin = SimMachine.__init__
    patch.setattr(SimMachine, "__init__", machine)


@caught_by("lease safety", on=replace(FOLLOWER_STOPS, seed=4))
def pages_that_stay_active(patch: Patch) -> None:
    patch.setattr(LeaseClient, "_refuse", lambda self, why, state=None: None)


@caught_by("lease safety", on=LEADERS_CUT_OFF)
def grants_without_the_quorum_lease(patch: Patch) -> None:
    grant_all = LeaseServer._grant_all

    def granted(self: LeaseServer, now: float) -> None:
        self._lease_holds = lambda: True
        grant_all(self, now)

    patch.setattr(LeaseServer, "_grant_all", granted)
    patch.setattr(LeaseServer, "end_term", lambda self: None)


@caught_by("fenced reads", on=Stage("many", 34))
def reads_of_what_is_not_released(patch: Patch) -> None:
    patch.setattr(StrictResponses, "is_pending", lambda self, request: False)


@caught_by("procedures", on=FOLLOWER_CUT_OFF)
def procedures_that_do_not_wait(patch: Patch) -> None:
    """They continue from PREPARED as soon as that is committed (F8)."""

    async def at_once(self: NodeStore, revision: int) -> None:
        return

    patch.setattr(NodeStore, "released", at_once)


@caught_by("catalog answers")
def procedures_that_are_settled_at_once(patch: Patch) -> None:
    """The client gets that result before every node has acknowledged, or is fenced (F8)."""
    do = Catalog.do

    async def at_once(
        self: Catalog, kind_name: object, given: Any, id_: Any = None, wait_s: Any = None
    ) -> CatalogOutcome:
        asked = asyncio.ensure_future(do(self, kind_name, given, id_, wait_s))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.wait({asked}, timeout=0.001)
        if asked.done():
            return asked.result()
        return CatalogOutcome(replace(await self._engine.read(str(id_)), state=ProcedureState.DONE), released=True)

    patch.setattr(Catalog, "do", at_once)


@caught_by("catalog answers", on=replace(CALM, seed=4))
def ends_reported_before_their_release(patch: Patch) -> None:
    released = Catalog._released

    async def at_once(self: Catalog, id_: str, wait_s: float) -> tuple[Procedure, bool]:
        procedure, _ = await released(self, id_, wait_s)
        return procedure, True

    patch.setattr(Catalog, "_released", at_once)


@caught_by("catalog answers", on=replace(MEMBER_CUT_OFF, seed=7))
def lookups_without_a_read_barrier(patch: Patch) -> None:
    """Without a barrier: a procedure is shown in an old state."""

    async def looked(self: NodeStore, request: Range) -> RangeResult:
        return await self._service.range(replace(request, serializable=True), caller=UNRESTRICTED)

    patch.setattr(NodeStore, "range", looked)


@caught_by("catalog objects")
def objects_that_stay(patch: Patch) -> None:
    """A procedure that drops an object is done, and the last of its rows still exists (F9)."""

    def ended(self: Any, before: Any, after: Any, changes: Any, compare: Any = ()) -> Any:
        return end(self, before, after, {} if before.state is ProcedureState.DESTROYING else changes, compare)

    end = ProcedureEngine._end
    patch.setattr(ProcedureEngine, "_end", ended)


@caught_by("catalog objects", on=replace(CALM, seed=6), says="(drop-resource) is done")
def resources_that_stay(patch: Patch) -> None:
    """Their execution continues after the procedure that drops one is done (seed 000, Tier B)."""
    dropped = KINDS["drop-resource"]
    patch.setitem(KINDS, "drop-resource", replace(dropped, plan=lambda request, rows, drawn: CatalogPlan({})))


@caught_by("bounded wait")
def releases_that_never_come(patch: Patch) -> None:
    advance = Releases.advance

    def stuck(self: Releases, now: float) -> int | None:
        return None if self.rr is not None and self.lm > 20 else advance(self, now)

    patch.setattr(Releases, "advance", stuck)


@caught_by("back-pressure", on=HOLDERS_PAUSED)
def holders_that_are_never_disconnected(patch: Patch) -> None:
    """Their connections are closed after their buffered bytes, which they do not read."""
    opens = LeaseEndpoint.open
    patch.setattr(
        LeaseEndpoint, "open", lambda self, write, unsent, close, abort: opens(self, write, unsent, close, close)
    )


@caught_by("bounded wait", on=MEMBER_CUT_OFF)
def waits_of_five_times_their_bound(patch: Patch) -> None:
    proceed_s = FenceTiming.proceed_s
    patch.setattr(FenceTiming, "proceed_s", lambda self, lease_s=None: 5 * proceed_s(self, lease_s))


@caught_by("bounded wait", on=FOLLOWER_HEARS_NOTHING)
def grants_that_require_nothing(patch: Patch) -> None:
    """The leader assumes that each lease requires what was committed before it, too."""
    grant = Holding.grant
    patch.setattr(Holding, "grant", lambda self, t0, now, after: grant(self, t0, now, 0))


@caught_by("lease safety", on=FOLLOWER_CUT_OFF)
def released_changes_without_marks(patch: Patch) -> None:
    """Nor does it need to be applied. No later release reaches that page, which would serve the old value."""
    stage = VaultStaging.stage

    def fewer(self: VaultStaging, rows: Sequence[Row], *, anew: bool = False) -> list[Row]:
        return stage(self, [row for row in rows if row[0] > self.released], anew=anew)

    patch.setattr(VaultStaging, "stage", fewer)


@caught_by("fenced reads", "linearizable", on=FOLLOWER_CUT_OFF)
def releases_before_any_holder_has_staged(patch: Patch) -> None:
    turn = LeaseServer._turn

    def eager(self: LeaseServer) -> None:
        if self.core.rr is not None:
            self._on_released(self.core.lm)
        turn(self)

    patch.setattr(LeaseServer, "_turn", eager)


@caught_by("lease safety", "fenced reads")
def stages_that_mark_nothing(patch: Patch) -> None:
    """STAGED is sent nevertheless."""
    patch.setattr(VaultStaging, "stage", lambda self, rows, anew=False: [])


@caught_by("lease safety", "fenced reads")
def stages_acknowledged_before_their_commit(patch: Patch) -> None:
    def early(self: LeaseClient, mark: Any) -> None:
        self._send_if_any(self.core.marked(mark, self._now()))
        rows = [StagedChange(*row) for row in mark.rows]
        asyncio.get_running_loop().call_later(0.01, lambda: self.vault.staging.stage(rows))

    patch.setattr(LeaseClient, "_mark", early)


@caught_by("lease safety")
def strict_logs_of_last_revisions(patch: Patch) -> None:
    """Of an entry with several revisions only the last one is staged."""
    keep = StrictLog._keep
    patch.setattr(StrictBatch, "strict", property(lambda self: (self.upto, self.upto) if self.keys else None))
    patch.setattr(StrictLog, "_keep", lambda self, batch: keep(self, batch._replace(after=batch.upto - 1)))


@caught_by("stays up", says="VaultUngated")
def gates_that_admit_everything(patch: Patch) -> None:
    """Committed changes enter the vault, released or not, and the vault refuses them."""
    patch.setattr(VaultGate, "_free", lambda self, revisions: len(revisions))
    patch.setattr(VaultGate, "allowed", lambda self: None)


@caught_by("lease safety", "fenced reads")
def vaults_without_gate_and_guard(patch: Patch) -> None:
    """Neither the gate nor the vault itself keeps out unreleased changes, and nothing is marked."""
    gates_that_admit_everything(patch)
    stages_that_mark_nothing(patch)
    patch.setattr(VaultStaging, "superseded", lambda self, lv: {})


MEMBER_REMOVED = with_faults(Fault(3.0, Kind.REMOVE, "n2", "n1", 9.0))


@caught_by("removed members", on=MEMBER_REMOVED, says="knows of its removal")
def removed_members_that_continue_to_serve(patch: Patch) -> None:
    """What issue 16 saw: the fence of a removed member stayed active."""
    patch.setattr(FencingComponent, "removed", lambda self: None)


@caught_by(
    "removed members",
    on=with_faults(Fault(2.9, Kind.ISOLATE, "n2", "n1", 9.0), Fault(3.0, Kind.REMOVE, "n2", "n1", 9.0)),
)
def removed_members_with_long_leases(patch: Patch) -> None:
    """They are cut off, so they do not learn of their removal: only the end of the lease ends their reads."""
    deadline: Any = FenceLease.deadline
    patch.setattr(FenceLease, "deadline", property(lambda self: deadline.fget(self) + 5.0))
    patch.setattr(LeaseClient, "recovering", lambda self, begins: setattr(self, "caught_up", True))
