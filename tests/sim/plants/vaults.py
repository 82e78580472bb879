"""Faults of vaults, and of the recovery of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import palisade.recovery.recovery
import palisade.vault.vault
import palisade.vault.verification
from palisade.node.config import RetentionConfig
from palisade.node.fencing.lease_client import LeaseClient
from palisade.recovery import feed_messages as wire
from palisade.recovery.decision import Case, Join
from palisade.recovery.eviction_plan import EvictionPlan
from palisade.recovery.ports import SourceState
from palisade.recovery.store_source import StoreSource
from palisade.vault.change import Revision
from palisade.vault.errors import VaultUnusable
from palisade.vault.fence_page import COPY_BYTES, FencePage, unpack_fence
from palisade.vault.incoming_difference import Incoming
from palisade.vault.staging import VaultStaging
from palisade.vault.vault import PLAN_DUE, Vault
from tests.sim.faults import Fault, Kind
from tests.sim.plants.plant import Patch, Stage, caught_by, with_faults
from tests.sim.vault_backend import SimBackend
from tests.sim.vault_home import SimVaultHome
from tests.sim.world import Settings

AMONG_THE_CUT_OFF = with_faults(
    Fault(5.5, Kind.ISOLATE, "n3", "f1", 4.0),
    Fault(6.0, Kind.WIPE, "f1", "n1", 0.5),
    Fault(7.0, Kind.ISOLATE, "n2", "f1", 4.0),
)
"""A follower restarts, and asks any reachable member."""
ONE_CRASH = with_faults(Fault(6.0, Kind.CRASH, "n2", "n1", 0.5))


@caught_by("LV monotonic", on=ONE_CRASH)
def vaults_that_forget_when_their_process_dies(patch: Patch) -> None:
    opened = SimVaultHome.open

    async def older(self: SimVaultHome) -> Any:
        self._disk.backend.lose_power()
        return await opened(self)

    patch.setattr(SimVaultHome, "open", older)


@caught_by("LV monotonic", on=ONE_CRASH)
def vaults_that_open_at_an_older_revision(patch: Patch) -> None:
    opened = Vault.__init__

    def older(self: Vault, *arguments: Any, **options: Any) -> None:
        opened(self, *arguments, **options)
        if self.position.revision > 5:
            self.position = replace(self.position, revision=self.position.revision - 1)

    patch.setattr(Vault, "__init__", older)


@caught_by("recovery inputs", on=replace(AMONG_THE_CUT_OFF, seed=7), says="LM")
def recoveries_without_a_read_barrier(patch: Patch) -> None:
    """Without a read barrier (R3)."""
    state = StoreSource.state

    async def at_once(self: StoreSource, chain_at: int) -> SourceState:
        barrier, self._barrier = self._barrier, no_barrier
        try:
            return await state(self, chain_at)
        finally:
            self._barrier = barrier

    patch.setattr(StoreSource, "state", at_once)


async def no_barrier() -> None: ...


@caught_by("recovery inputs", on=ONE_CRASH, says="MM")
def minimal_revisions_that_are_one_off(patch: Patch) -> None:
    to_state = wire.to_state
    patch.setattr(wire, "to_state", lambda body: (own := to_state(body)) and replace(own, minimal=own.minimal + 1))


@caught_by("vaults")
def vaults_that_keep_half_of_a_revision(patch: Patch) -> None:
    """And do not compare their digest with the cluster's (R1, R7)."""
    project = palisade.vault.vault.project

    def half(revisions: Sequence[Revision], *rest: Any) -> Any:
        return project([Revision(each.number, each.bodies[:1]) for each in revisions], *rest)

    patch.setattr(palisade.vault.vault, "project", half)


@caught_by("vaults")
def vaults_that_book_rows_and_do_not_write_them(patch: Patch) -> None:
    """Rows that no client reads in a vault, and that never change: LV, chain digest and sums are right (R1)."""
    project, lost = palisade.vault.vault.project, b"palisade/catalog/databases/"

    def booked(*arguments: Any) -> Any:
        done = project(*arguments)
        return replace(done, entries={key: row for key, row in done.entries.items() if not key.startswith(lost)})

    patch.setattr(palisade.vault.vault, "project", booked)


@caught_by("recovery decision", on=with_faults(*(Fault(4.0 + 3 * n, Kind.CRASH, "n2", "n1", 1.0) for n in range(4))))
def joins_of_vaults_that_lag(patch: Patch) -> None:
    decide = palisade.recovery.recovery.decide  # type: ignore[attr-defined]

    def sure(vault: Any, cluster: Any, options: Any) -> Any:
        decision = decide(vault, cluster, options)
        return Join(Case.A) if 0 < cluster.latest - vault.revision < 5 else decision

    patch.setattr(palisade.recovery.recovery, "decide", sure)


@caught_by("liveness", on=with_faults(Fault(4.0, Kind.ISOLATE, "f1", "n1", 6.0)))
def nodes_that_never_come_back(patch: Patch) -> None:
    """A node that is fenced after its first recovery starts no other one (F2)."""
    begin = LeaseClient.begin_recovery
    wants = LeaseClient.wants_recovery

    def begun(self: Any) -> Any:
        self.has_begun = True
        return begin(self)

    patch.setattr(LeaseClient, "begin_recovery", begun)
    patch.setattr(LeaseClient, "wants_recovery", lambda self: not hasattr(self, "has_begun") and wants(self))


AGAIN_WITHOUT_POWER = with_faults(
    *(Fault(2.0 + 1.2 * number, Kind.POWER, ("f1", "n2")[number % 2], "n1", 0.2) for number in range(14))
)
POWER_BEHIND_STOPS = with_faults(
    *(
        fault
        for number in range(7)
        for fault in (
            Fault(2.0 + 2.4 * number, Kind.STOP, ("f1", "n2")[number % 2], "n1", 1.0),
            Fault(2.5 + 2.4 * number, Kind.POWER, ("f1", "n2")[number % 2], "n1", 0.2),
        )
    )
)
HOLDER_WITHOUT_ROOM = with_faults(*(Fault(2.0 + 4.0 * number, Kind.FULL_DISK, "f1", "n1", 2.0) for number in range(4)))


@caught_by("vaults", on=AGAIN_WITHOUT_POWER)
def vaults_that_are_believed_after_a_loss_of_power(patch: Patch) -> None:
    """The boot in which unsynced data were written is not checked (M7)."""
    patch.setattr(SimBackend, "suspect", False)


@caught_by("vaults", on=replace(AGAIN_WITHOUT_POWER, seed=9))
def verifications_without_a_check_of_the_revision(patch: Patch) -> None:
    """Entries and sums that are both of an older moment match."""
    verify = palisade.vault.verification.verify

    def blind(of: Vault) -> Any:
        of.position = replace(of.position, content=None)
        return verify(of)

    patch.setattr("tests.sim.vault_home.verify", blind)


@caught_by("vaults", on=replace(POWER_BEHIND_STOPS, seed=5))
def marks_that_go_before_the_sync(patch: Patch) -> None:
    """A vault treats its commits as durable when it is closed, and they are not."""

    def unmarked(self: SimBackend) -> None:
        self.boot, self._marked = None, False

    patch.setattr(SimBackend, "sync", unmarked)


@caught_by("lease safety", on=HOLDER_WITHOUT_ROOM)
def stages_that_are_acknowledged_without_a_commit(patch: Patch) -> None:
    """There was no room for it, and the leader gets the acknowledgement that the keys are marked (F5)."""
    stage = VaultStaging.stage

    def staged(self: VaultStaging, rows: Any, *, anew: bool = False) -> Any:
        try:
            return stage(self, rows, anew=anew)
        except VaultUnusable:
            return []

    patch.setattr(VaultStaging, "stage", staged)


FOLLOWER_DIES = with_faults(
    *(
        fault
        for number in range(6)
        for fault in (
            Fault(2.0 + 3.0 * number, Kind.CRASH, "f1", "n1", 0.1),
            Fault(2.3 + 3.0 * number, Kind.ISOLATE, "f1", "n1", 1.5),
        )
    )
)
"""The next process reports that it serves nothing, and is cut off before any change reaches it."""


@caught_by("lease safety", on=replace(FOLLOWER_DIES, seed=39))
def starts_that_leave_the_page_up(patch: Patch) -> None:
    """The page of the process that died stays ACTIVE while its successor recovers, applies unreleased changes, and
    marks nothing (F2)."""
    init, refuse, serve = FencePage.__init__, LeaseClient._refuse, FencePage.serve
    left: set[FencePage] = set()

    def kept(self: FencePage, buffer: Any, boot: bytes, *, first_sequence: int = 1) -> None:
        before = bytes(buffer[:COPY_BYTES])
        init(self, buffer, boot, first_sequence=first_sequence)
        if any(before) and (fence := unpack_fence(before)).boot == boot:
            self._publish(state=fence.state, deadline_ns=fence.deadline_ns)
            left.add(self)

    def refused(self: LeaseClient, *why: Any) -> None:
        if self.vault.page not in left:
            refuse(self, *why)

    def served(self: FencePage, deadline_ns: int, term: int) -> None:
        left.discard(self)
        serve(self, deadline_ns, term)

    patch.setattr(FencePage, "__init__", kept)
    patch.setattr(FencePage, "serve", served)
    patch.setattr(LeaseClient, "_refuse", refused)
    patch.setattr(VaultStaging, "superseded", lambda self, lv: {})


EVICTIONS_INTERRUPTED = Stage(
    "strange",
    3,
    tuple(
        Fault(2.0 + 7.0 * number, Kind.CRASH_IN_START, "f1", "n1", 3.0, amount)
        for number, amount in enumerate((0.01, 0.13, 0.3))
    ),
    Settings(retention=RetentionConfig(revisions=15)),
)
"""A follower dies in the eviction after a snapshot, and needs another snapshot when it is back."""


@caught_by("local data", on=EVICTIONS_INTERRUPTED)
def snapshots_that_forget_an_eviction_plan(patch: Patch) -> None:
    """What the plan before a second snapshot has left incomplete counts as complete (issue 16)."""
    finish = Incoming.finish

    def anew(self: Incoming, chain: bytes, theirs: Any) -> None:
        self._vault.store_plan(PLAN_DUE)
        finish(self, chain, theirs)

    patch.setattr(Incoming, "finish", anew)


@caught_by("local data", on=EVICTIONS_INTERRUPTED)
def open_steps_of_a_plan_that_count_as_done(patch: Patch) -> None:
    """By the plan after the next snapshot (issue 16)."""
    patch.setattr(EvictionPlan, "open_after", lambda self, done: frozenset())
