"""After the recovery: applies every further revision, through the listeners, for as long as the node runs.

A node that falls below MM (it was paused for long, or cut off) returns to recovery, and its listeners receive the
difference as changes: none is skipped. The system of seed 001 takes the snapshot and skips them.
"""

from __future__ import annotations

from collections.abc import Callable

from palisade.recovery.decision import Options, Refuse, decide
from palisade.recovery.errors import SourceCompacted
from palisade.recovery.ports import RevisionSource
from palisade.recovery.recovery import Recovery, Settings, World, cluster_state, vault_state
from palisade.recovery.replay import notify_and_apply
from palisade.recovery.report import RecoveryProgress, RecoveryRecorder, RecoveryReport
from palisade.recovery.retrying_source import RetryingSource

LOOK_S = 5.0
"""How often a following node checks that the history of the cluster is still its own."""
REPORTS_MAX = 100


class Follower:
    """`reports` has the last recoveries of this process that have ended, in order, out of `begun` recoveries.

    `under_way` is the one in progress, or None.
    """

    def __init__(
        self,
        world: World,
        settings: Settings,
        *,
        on_recovering: Callable[[bool], None] | None = None,
        on_progress: Callable[[RecoveryProgress], None] | None = None,
        on_report: Callable[[RecoveryReport], None] | None = None,
    ) -> None:
        """`on_recovering(True)` is called before a recovery begins, `on_recovering(False)` when the node has caught up.

        `on_report`: called when a recovery has ended, with any outcome.
        """
        self._world, self._settings = world, settings
        self._on_recovering, self._on_progress, self._on_report = on_recovering, on_progress, on_report
        self.reports: list[RecoveryReport] = []
        self.under_way: RecoveryRecorder | None = None
        self.begun = 0
        self._source = RetryingSource(world.source, world.clock, RecoveryRecorder(settings.node_id, world.clock.now))
        self._changes: RevisionSource = world.applied or self._source
        self._look_at = world.clock.now() + LOOK_S

    def _new_recorder(self) -> RecoveryRecorder:
        return RecoveryRecorder(self._settings.node_id, self._world.clock.now, self._on_progress)

    async def recover(self, *, running: bool = False) -> RecoveryReport:
        """Raises the error that ends a recovery; its report is kept as well."""
        recorder = self.under_way = self._new_recorder()
        self.begun += 1
        if self._on_recovering is not None:
            self._on_recovering(True)
        try:
            await Recovery(self._world, self._settings, recorder, running=running).run()
        finally:
            self.under_way = None
            self.reports.append(recorder.report)
            del self.reports[:-REPORTS_MAX]
            if self._on_report is not None:
                self._on_report(recorder.report)
        if self._on_recovering is not None:
            self._on_recovering(False)
        return recorder.report

    async def follow(self) -> None:
        """Until cancelled. Raises errors of listeners and of the vault: the node stops; its next start continues at LV.

        Raises RecoveryRefused if the history of the cluster has changed (restored, forced, lost).
        """
        while True:
            await self.step()

    async def step(self) -> None:
        """The next revisions, or a recovery if they are compacted; waits a bounded time if there are none yet."""
        try:
            await self.look()
            vault = self._world.vault
            last = vault.revision + self._settings.batch_revisions
            revisions = await self._changes.changes(vault.revision + 1, last)
            world = self._world
            await notify_and_apply(vault, world.listeners, world.clock, revisions, gate=world.gate)
        except SourceCompacted:
            await self.recover(running=True)

    async def look(self) -> None:
        """Periodically check that the history of the cluster is still the vault's: no revision may arrive for long."""
        if self._world.clock.now() >= self._look_at:
            await self._look(self._source)
            self._look_at = self._world.clock.now() + LOOK_S

    async def _look(self, source: RetryingSource) -> None:
        """Check the history: a cluster that was restored meanwhile may have no new revision for long.

        If it has changed, a recovery refuses the vault, with a report as at a start.
        """
        vault = self._world.vault
        state = await source.state(vault.revision)
        decision = decide(vault_state(vault), cluster_state(state), Options(self._settings.node_id))
        if isinstance(decision, Refuse):
            await self.recover(running=True)
