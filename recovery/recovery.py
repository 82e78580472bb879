"""From the vault to the cluster's state: decide, move, decide again, until the node has caught up (R2 to R8).

One loop for all cases. Each turn reads LM and MM, and decides by the table on the present vault. Thus a replay that
compaction overtakes, one that costs too much, and a crash at any point need no special handling.

The order at a start: snapshot if needed, eviction, components, replay. Components never see a vault between two
revisions. In a running node: snapshot, notification of the listeners, then eviction of what they no longer use. State
that must not be lost is in the vault before a step begins: the mark of the snapshot, the plan. After every long step LM
is read again: a recovery has ended only when the components have started.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from palisade.base.counted import revision_range
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
from palisade.recovery.replay import notify_and_apply
from palisade.recovery.report import RecoveryOutcome, RecoveryPhase, RecoveryRecorder, RecoveryReport
from palisade.recovery.retrying_source import RetryingSource
from palisade.vault.change import Revision
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault

BATCH_REVISIONS = 1_000
COMMIT_BYTES = 2 << 20
"""Maximum bytes of one commit of a replay."""
DIFFERENCE_EVENTS = 1_000
MEASURE_AFTER = 2_000
"""After this many revisions, a replay uses its own measured speed. The first batch does not count, nor the time before
it: pinning MM and connecting to the metadata store do not depend on how much there is to replay."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`batch_revisions`: revisions per request. `batches_per_commit`: batches per commit of a replay, fewer if they are
    large. In a large vault, more changes share pages then, but each commit occupies the event loop for longer.
    """

    node_id: str
    standalone: bool = False
    rates: Rates = field(default_factory=Rates)
    pin_life_s_max: float = PIN_LIFE_S_MAX
    batch_revisions: int = BATCH_REVISIONS
    batches_per_commit: int = 1


@dataclass(frozen=True, slots=True)
class World:
    """The environment of a recovery. `difference` may be changed while it runs."""

    vault: Vault
    source: ClusterSource
    listeners: ListenerPort
    resources: Resources
    clock: RecoveryTime
    difference: Difference
    gate: ApplyGate = field(default_factory=OpenGate)
    """For following after the recovery; a node in recovery does not serve."""
    applied: RevisionSource | None = None
    """Of a member: the revisions that its own replica applies. Following takes them from there, not from `source`."""


class Recovery:
    """One recovery of one node. `running`: the components have started, and know the present vault."""

    def __init__(self, world: World, settings: Settings, recorder: RecoveryRecorder, *, running: bool = False) -> None:
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
        """Return when the node has caught up. Raises RecoveryRefused and others, after making the report."""
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
        """Record the decision; a decision that only completes a case is not a case of its own."""
        case = case_of(decision)
        report = self._recorder.report
        if report.case is None:
            self._recorder.note(first_case=case, case=case, reason=reason_of(decision))
        elif isinstance(decision, Snapshot | Refuse):
            self._recorder.note(case=case, reason=reason_of(decision))
        if isinstance(decision, Refuse):
            raise RecoveryRefused(decision)

    def _claim(self, state: SourceState) -> None:
        """A vault without lineage belongs to this cluster from now on."""
        if self._vault.lineage is None:
            self._vault.claim(VaultLineage(state.cluster_id, state.generation, self._settings.node_id))

    async def _follow(self, decision: Decision, state: SourceState) -> bool:
        """One step. Returns whether the node has caught up."""
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
        """To the LM of `state`, unless it costs too much, or the rest is acceptable. Raises SourceCompacted."""
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
                await notify_and_apply(vault, self._listeners, self._clock, revisions, go_on)
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
        """Counts committed revisions."""
        lv = self._vault.revision
        self._recorder.add(revisions_replayed=lv - max(first, self._recorder.report.lv))
        self._recorder.note(lv=lv)
        self._recorder.step(RecoveryPhase.REPLAY, lv - first, latest - first, "revisions")

    def _is_enough_now(self, state: SourceState, chosen: int) -> bool:
        """Whether the acceptable difference was changed and the rest is now acceptable: a change also applies to a long
        round in progress."""
        changed = self._difference.chosen != chosen
        return changed and state.latest - self._vault.revision <= self._difference.value

    async def _gather(self, first: int, latest: int) -> Sequence[Revision]:
        """The revisions of the next commit, from `first` on."""
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
        """With the estimated cost of each way from here. After one snapshot, cost is no reason for another one."""
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
        """One attempt. If compaction overtakes it, another attempt follows, for a later revision."""
        target = state.latest
        try:
            with self._recorder.phase(RecoveryPhase.SNAPSHOT):
                await self._pin.hold(target, now=True)
                fetch = DifferenceFetch(
                    self._vault, self._source, self._clock, self._recorder, lambda: self._pin.hold(target)
                )
                await fetch.run(target, state.keys, notify=self._running)
        except SourceCompacted as overtaken:
            self._recorder.note(mm=overtaken.minimal_revision)
            return
        self._recorder.add(snapshots=1)
        self._recorder.note(lv=self._vault.revision)
        self._progress = after_snapshot(self._progress)
        self._moved = True
        await self._settle()

    async def _settle(self) -> None:
        """Work that a snapshot leaves on a running node; also of an earlier recovery that was cancelled."""
        if self._running and self._vault.recovering is None:
            if self._vault.has_difference:
                await self._notify_difference()
            await self._evict()

    async def _notify_difference(self) -> None:
        """Page by page: after an interruption the last page is repeated, and none is skipped."""
        with self._recorder.phase(RecoveryPhase.NOTIFY):
            until: bytes | None = b""
            notified = 0
            while until is not None:
                events, until = self._vault.difference(DIFFERENCE_EVENTS)
                await self._listeners.difference(self._vault.revision, events, until is None)
                self._vault.forget_difference(until)
                notified += len(events)
                self._recorder.step(RecoveryPhase.NOTIFY, notified, 0, "keys")
                await self._hold_if_there()

    async def _hold_if_there(self) -> None:
        """The work in progress needs nothing of the cluster; the next step detects a failure itself."""
        with suppress(SourceCompacted):
            await self._pin.hold(self._vault.revision)

    async def _evict(self) -> None:
        """If it is due: after a snapshot of this start, or of one that ended before its eviction was done."""
        if self._vault.plan() is not None:
            with self._recorder.phase(RecoveryPhase.EVICTION):
                await evict(self._vault, self._resources, self._recorder, self._hold_if_there)

    async def _start(self) -> None:
        """Start the components, once, from a complete vault."""
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
            one = first == last
            return f"{revision_range(first, last)} {'was missed and is' if one else 'were missed and are'} retained"
        case Snapshot(reason):
            return reason.value
        case Refuse(reason):
            return reason.value
