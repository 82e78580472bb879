"""From the vault to the cluster's state: decide, get there, decide again, until the node has caught up (R2 to R8).

One loop for all cases. Each turn reads LM and MM, and asks the table what to do on the vault as it is now; so a replay
that compaction overtakes, one that costs too much, and a crash in the middle of anything need no way of their own.

The order at a start: snapshot if need be, eviction, components, replay. Components never see a vault between two
revisions. In a node that runs already: snapshot, the listeners are told the difference, and then what they have let go
of is evicted. What must not be forgotten is in the vault before it begins: the mark of the snapshot, the plan. Whatever
took its time, LM is read again behind it: only who has started is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from palisade.recovery.apply_gate import ApplyGate, OpenGate
from palisade.recovery.catchup import (
    CatchUpProgress,
    Difference,
    Next,
    acceptable,
    after_round,
    after_snapshot,
    next_step,
)
from palisade.recovery.compaction_pin import PIN_LIFE_S_MAX, PinHolder
from palisade.recovery.cost_estimate import Rates, replay_estimate, snapshot_estimate
from palisade.recovery.decision import (
    ClusterHistory,
    Decision,
    Join,
    Options,
    Refuse,
    Replay,
    Snapshot,
    SnapshotReason,
    VaultState,
    case_of,
    decide,
    is_too_costly,
)
from palisade.recovery.difference import DifferenceFetch
from palisade.recovery.errors import RecoveryRefused, SourceCompacted
from palisade.recovery.eviction import evict
from palisade.recovery.ports import ClusterSource, ListenerPort, RecoveryTime, Resources, RevisionSource, SourceState
from palisade.recovery.replay import tell_and_apply
from palisade.recovery.report import Recorder, RecoveryOutcome, RecoveryPhase, RecoveryReport
from palisade.recovery.retrying_source import RetryingSource
from palisade.vault.change import Revision
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault

BATCH_REVISIONS = 1_000
COMMIT_BYTES = 2 << 20
"""So much is enough for one commit of a replay."""
DIFFERENCE_EVENTS = 1_000
MEASURE_AFTER = 2_000
"""A replay knows its own speed after so many revisions. The first batch is not one of them, nor what came before it:
pinning MM and reaching the meta storage take what they take, however much there is to replay."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`batch_revisions`: of one question. `batches_per_commit`: a replay gathers so many of them, if they are not
    large: changes all over a large vault share pages then, but each commit keeps the event loop for longer.
    """

    node_id: str
    standalone: bool = False
    rates: Rates = field(default_factory=Rates)
    pin_life_s_max: float = PIN_LIFE_S_MAX
    batch_revisions: int = BATCH_REVISIONS
    batches_per_commit: int = 1


@dataclass(frozen=True, slots=True)
class World:
    """What a recovery works with. `difference` may be changed while it runs."""

    vault: Vault
    source: ClusterSource
    listeners: ListenerPort
    resources: Resources
    clock: RecoveryTime
    difference: Difference
    gate: ApplyGate = field(default_factory=OpenGate)
    """Of what follows the recovery; while a node recovers it serves nobody."""
    applied: RevisionSource | None = None
    """Of a member: what its own replica applies. What follows the recovery takes it from there, not from `source`."""


class Recovery:
    """One recovery of one node. `running`: the components have started, and know the vault as it is now."""

    def __init__(self, world: World, settings: Settings, recorder: Recorder, *, running: bool = False) -> None:
        self._vault, self._listeners, self._resources = world.vault, world.listeners, world.resources
        self._clock, self._difference = world.clock, world.difference
        self._settings, self._recorder = settings, recorder
        self._source = RetryingSource(world.source, world.clock, recorder)
        self._pin = PinHolder(self._source, world.clock, settings.pin_life_s_max)
        self._running = running
        self._progress = CatchUpProgress()
        self._moved = False
        self._replay_s: float | None = None
        recorder.note(lv_before=self._vault.revision, lv=self._vault.revision)

    async def run(self) -> RecoveryReport:
        """Return when the node has caught up. Raises RecoveryRefused, and whatever else ends it; the report is made."""
        try:
            if self._settings.standalone:
                await self._stand_alone()
            else:
                await self._catch_up()
        except BaseException as error:
            self._note_end()
            refused = isinstance(error, RecoveryRefused)
            self._recorder.end(RecoveryOutcome.REFUSED if refused else RecoveryOutcome.FAILED, error)
            raise
        self._note_end()
        return self._recorder.end(RecoveryOutcome.DONE)

    def _note_end(self) -> None:
        difference = acceptable(self._progress, self._difference.value)
        self._recorder.note(lv=self._vault.revision, pinned=self._pin.held, difference=difference)

    async def _stand_alone(self) -> None:
        options = Options(self._settings.node_id, standalone=True)
        self._accept(decide(self._vault_state(), None, options))
        await self._start()

    async def _catch_up(self) -> None:
        await self._settle()
        while True:
            with self._recorder.phase(RecoveryPhase.ASK):
                state = await self._source.state(self._vault.revision)
            decision = decide(self._vault_state(), cluster_state(state), self._options(state))
            self._accept(decision)
            self._claim(state)
            if await self._follow(decision, state):
                if self._running:
                    break
                await self._start()
        await self._pin.release()

    def _accept(self, decision: Decision) -> None:
        """Into the report; what is only the last step of a case is not a case of its own."""
        case = case_of(decision)
        report = self._recorder.report
        if report.case is None:
            self._recorder.note(first_case=case, case=case, reason=reason_of(decision))
        elif isinstance(decision, Snapshot | Refuse):
            self._recorder.note(case=case, reason=reason_of(decision))
        if isinstance(decision, Refuse):
            raise RecoveryRefused(decision)

    def _claim(self, state: SourceState) -> None:
        """A vault that was nobody's is of this cluster from now on."""
        if self._vault.lineage is None:
            self._vault.claim(VaultLineage(state.cluster_id, state.generation, self._settings.node_id))

    async def _follow(self, decision: Decision, state: SourceState) -> bool:
        """One step of the way. Whether the node has caught up."""
        if isinstance(decision, Snapshot):
            await self._snapshot(state)
            return False
        behind = state.latest - self._vault.revision
        step = next_step(self._progress, self._difference.value, behind=behind)
        if step is Next.CAUGHT_UP and (self._moved or not behind):
            return True
        if step is Next.SNAPSHOT:
            self._accept(Snapshot(SnapshotReason.STUCK))
            await self._snapshot(state)
            return False
        await self._start()
        try:
            with self._recorder.phase(RecoveryPhase.REPLAY):
                await self._replay(state)
        except SourceCompacted as overtaken:
            self._recorder.note(mm=overtaken.minimal_revision)
        return False

    # Case b

    async def _replay(self, state: SourceState) -> None:
        """To the LM of `state`, unless it costs too much, or what is left is acceptable. Raises SourceCompacted."""
        vault, first = self._vault, self._vault.revision
        chosen = self._difference.chosen

        def go_on() -> bool:
            self._count_replayed(first, state.latest)
            return vault.revision < state.latest and not self._is_enough_now(state, chosen)

        warm: tuple[int, float] | None = None
        while go_on():
            revisions = await self._gather(vault.revision + 1, state.latest)
            if not revisions:
                return
            try:
                await tell_and_apply(vault, self._listeners, self._clock, revisions, go_on)
            finally:
                self._count_replayed(first, state.latest)
            done = vault.revision - first
            warm = warm or (done, self._clock.now())
            if (measured := done - warm[0]) >= MEASURE_AFTER:
                self._replay_s = (self._clock.now() - warm[1]) / measured
                if is_too_costly(state.latest - vault.revision, self._options(state)):
                    return
        now_behind = (await self._source.state(vault.revision)).latest - vault.revision
        self._progress = after_round(self._progress, now_behind)
        self._moved = True

    def _count_replayed(self, first: int, latest: int) -> None:
        """As far as it is committed."""
        lv = self._vault.revision
        self._recorder.add(revisions_replayed=lv - max(first, self._recorder.report.lv))
        self._recorder.note(lv=lv)
        self._recorder.step(RecoveryPhase.REPLAY, lv - first, latest - first, "revisions")

    def _is_enough_now(self, state: SourceState, chosen: int) -> bool:
        """Who changes the acceptable difference in the middle of a long round means this one, too."""
        changed = self._difference.chosen != chosen
        return changed and state.latest - self._vault.revision <= self._difference.value

    async def _gather(self, first: int, latest: int) -> Sequence[Revision]:
        """What is told and committed next, from `first` on."""
        settings, found, size = self._settings, list[Revision](), 0
        for _ in range(settings.batches_per_commit):
            await self._pin.hold(min(first, latest))
            some = await self._source.changes(first, min(latest, first + settings.batch_revisions - 1))
            found += some
            size += sum([len(body) for revision in some for body in revision.bodies])
            first += len(some)
            if not some or first > latest or size >= COMMIT_BYTES:
                break
        return found

    def _options(self, state: SourceState) -> Options:
        """With what each way would cost from here. After one snapshot cost is no reason for another one."""
        missed, rates = max(0, state.latest - self._vault.revision), self._settings.rates
        snapshot_s = snapshot_estimate(missed, state.keys, rates) if not self._progress.snapshots else float("inf")
        return Options(
            self._settings.node_id,
            replay_s=replay_estimate(missed, rates, self._replay_s),
            snapshot_s=snapshot_s,
            catch_up_difference=self._difference.value,
        )

    # Case c

    async def _snapshot(self, state: SourceState) -> None:
        """One try. Compaction that overtakes it all the same leads to another try, for a later revision."""
        target = state.latest
        try:
            with self._recorder.phase(RecoveryPhase.SNAPSHOT):
                await self._pin.hold(target, now=True)
                fetch = DifferenceFetch(
                    self._vault, self._source, self._clock, self._recorder, lambda: self._pin.hold(target)
                )
                await fetch.run(target, state.keys, tell=self._running)
        except SourceCompacted as overtaken:
            self._recorder.note(mm=overtaken.minimal_revision)
            return
        self._recorder.add(snapshots=1)
        self._recorder.note(lv=self._vault.revision)
        self._progress = after_snapshot(self._progress)
        self._moved = True
        await self._settle()

    async def _settle(self) -> None:
        """What a snapshot leaves to be done in a node that runs; also one of an earlier recovery that was cancelled."""
        if self._running and self._vault.recovering is None:
            if self._vault.has_difference:
                await self._tell_difference()
            await self._evict()

    async def _tell_difference(self) -> None:
        """Page by page: whoever interrupts it has the last page told again, and none skipped."""
        with self._recorder.phase(RecoveryPhase.TELL):
            until: bytes | None = b""
            told = 0
            while until is not None:
                events, until = self._vault.difference(DIFFERENCE_EVENTS)
                await self._listeners.difference(self._vault.revision, events, until is None)
                self._vault.forget_difference(until)
                told += len(events)
                self._recorder.step(RecoveryPhase.TELL, told, 0, "keys")
                await self._hold_if_there()

    async def _hold_if_there(self) -> None:
        """What is under way needs nothing of the cluster any more; what comes next finds out by itself."""
        with suppress(SourceCompacted):
            await self._pin.hold(self._vault.revision)

    async def _evict(self) -> None:
        """If it is due: after a snapshot of this start or of one that ended before it was done."""
        if self._vault.plan() is not None:
            with self._recorder.phase(RecoveryPhase.EVICTION):
                await evict(self._vault, self._resources, self._recorder, self._hold_if_there)

    async def _start(self) -> None:
        """The components, once, from a vault that is whole."""
        if self._running:
            return
        if not self._settings.standalone:
            await self._evict()
        self._vault.forget_difference()
        with self._recorder.phase(RecoveryPhase.START):
            await self._listeners.start()
        self._running = True

    def _vault_state(self) -> VaultState:
        return vault_state(self._vault)


def vault_state(vault: Vault) -> VaultState:
    mark = vault.recovering
    return VaultState(
        vault.lineage, vault.revision, vault.chain, mark is not None, mark.highest if mark else vault.revision
    )


def cluster_state(state: SourceState) -> ClusterHistory:
    return ClusterHistory(state.cluster_id, state.generation, state.latest, state.minimal, state.chain_at)


def reason_of(decision: Decision) -> str:
    match decision:
        case Join():
            return "LV = LM" if case_of(decision).value == "a" else "standalone"
        case Replay(first, last):
            return f"revisions {first} to {last} were missed and are retained"
        case Snapshot(reason):
            return reason.value
        case Refuse(reason):
            return reason.value
