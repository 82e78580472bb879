"""After the recovery: every further revision through the listeners into the vault, for as long as the node runs.

A node that falls behind MM (it was paused for long, or cut off) goes back to recovery, and its listeners are told the
difference as changes: none is skipped. The system behind seed 001 takes the snapshot and skips them.
"""

from __future__ import annotations

from collections.abc import Callable

from palisade.recovery.decision import Options, Refuse, decide
from palisade.recovery.errors import SourceCompacted
from palisade.recovery.ports import RevisionSource
from palisade.recovery.recovery import Recovery, Settings, World, cluster_state, vault_state
from palisade.recovery.replay import tell_and_apply
from palisade.recovery.report import Recorder, RecoveryProgress, RecoveryReport
from palisade.recovery.retrying_source import RetryingSource

LOOK_S = 5.0
"""How often a node that follows asks whether the history is still its own."""
REPORTS_MAX = 100


class Follower:
    """`reports` has the last recoveries of this process that have ended, in order, of all that were `begun`.

    `under_way` is that of the one that has not ended, or None.
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
        """`on_recovering(True)` before a recovery begins, `on_recovering(False)` when the node has caught up.

        `on_report`: when one has ended, however it did.
        """
        self._world, self._settings = world, settings
        self._on_recovering, self._on_progress, self._on_report = on_recovering, on_progress, on_report
        self.reports: list[RecoveryReport] = []
        self.under_way: Recorder | None = None
        self.begun = 0
        self._source = RetryingSource(world.source, world.clock, Recorder(settings.node_id, world.clock.now))
        self._changes: RevisionSource = world.applied or self._source
        self._look_at = world.clock.now() + LOOK_S

    def _new_recorder(self) -> Recorder:
        return Recorder(self._settings.node_id, self._world.clock.now, self._on_progress)

    async def recover(self, *, running: bool = False) -> RecoveryReport:
        """Raises what ends a recovery; its report is kept all the same."""
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
        """For ever. Raises what a listener or the vault raises: the node stops, its next start goes on from LV.

        Raises RecoveryRefused when the history of the cluster is another one by now (restored, forced, lost).
        """
        while True:
            await self.step()

    async def step(self) -> None:
        """The next revisions, or a recovery where they are gone; waits a bounded time where there are none yet."""
        try:
            await self.look()
            vault = self._world.vault
            last = vault.revision + self._settings.batch_revisions
            revisions = await self._changes.changes(vault.revision + 1, last)
            world = self._world
            await tell_and_apply(vault, world.listeners, world.clock, revisions, gate=world.gate)
        except SourceCompacted:
            await self.recover(running=True)

    async def look(self) -> None:
        """Now and then, whether the history of the cluster is still the vault's: nothing new may come for long."""
        if self._world.clock.now() >= self._look_at:
            await self._look(self._source)
            self._look_at = self._world.clock.now() + LOOK_S

    async def _look(self, source: RetryingSource) -> None:
        """Whether it is still the same history: a cluster that was restored meanwhile may have nothing new for long.

        If not, a recovery says so, which leaves its report as that of a start does.
        """
        vault = self._world.vault
        state = await source.state(vault.revision)
        decision = decide(vault_state(vault), cluster_state(state), Options(self._settings.node_id))
        if isinstance(decision, Refuse):
            await self.recover(running=True)
