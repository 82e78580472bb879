"""The vault of this node: opened at the start, caught up with the cluster, and kept up to date while the node runs.

The components that depend on the vault (`inner`) start when it is complete, are notified of every later revision, and
stop before it is closed. A node that was dropped from the topology catches up again without restarting them: they are
notified of what they have missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from palisade.raftgroup.ports import Clock
from palisade.recovery.apply_gate import ApplyGate, OpenGate
from palisade.recovery.catchup import Difference
from palisade.recovery.compaction_pin import PIN_LIFE_S_MAX
from palisade.recovery.flush_follower import FlushBatch, FlushFollower, body_of
from palisade.recovery.follower import Follower
from palisade.recovery.lifecycle import Component, Lifecycle, Part
from palisade.recovery.listeners import Notification
from palisade.recovery.ports import ClusterSource, NoResources, Resources
from palisade.recovery.progress_log import ProgressLog
from palisade.recovery.recovery import Settings, World
from palisade.recovery.report import RecoveryProgress, RecoveryReport
from palisade.recovery.vault_configuration import changes
from palisade.recovery.vault_storage import VaultHome
from palisade.vault.change import Revision, VaultEvent, events_below, item_of
from palisade.vault.vault import Vault

log = logging.getLogger(__name__)


class ComponentPort:
    """The listeners of a recovery: the inner lifecycle and its components.

    `notifying` is held while they are notified of one revision. A caller that acquires it before it cancels a recovery,
    to be followed by another one in this process, interrupts no notification: otherwise some listeners would receive
    that revision twice.
    """

    def __init__(self, inner: Lifecycle, vault: Callable[[], Vault]) -> None:
        self._inner = inner
        self._vault = vault
        self.started = False
        self.notifying = asyncio.Lock()

    async def start(self) -> None:
        if not self.started:
            self._inner.listeners.begin_at(self._vault().revision)
            await self._inner.start()
            self.started = True

    async def revision(self, revision: Revision) -> None:
        listeners = self._inner.listeners
        async with self.notifying:
            events = events_below(revision, listeners.prefixes) if listeners else ()
            await listeners.notify(Notification(revision.number, events))

    async def leap(self, leap: FlushBatch, take: Callable[[], Awaitable[None]]) -> None:
        """`take` commits the leap. In the same turn of the event loop, the listeners of prefixes receive what has
        changed there as one difference."""
        listeners = self._inner.listeners
        async with self.notifying:
            await take()
            if listeners:
                await listeners.notify(Notification(leap.position.revision, events_of_leap(leap, listeners.prefixes)))

    async def difference(self, revision: int, events: Sequence[VaultEvent], last: bool) -> None:
        async with self.notifying:
            await self._inner.listeners.notify(Notification(revision, events, last))


def events_of_leap(leap: FlushBatch, prefixes: tuple[bytes, ...]) -> list[VaultEvent]:
    end = leap.position.revision
    bodies = ((key, body_of(leap.rows[key])) for key in leap.keys if key.startswith(prefixes))
    return [VaultEvent(key, end, None if body is None else item_of(body)) for key, body in bodies]


PAUSE_S_MAX = 0.05
BATCHES_PER_COMMIT = 8
"""Of a replay, on a node on which no other node depends."""


class RecoveryClock:
    """The event loop's clock for waiting, the system's for measuring.

    `gentle`: on each yield the recovery pauses for as long as it has worked since the last one, so that a member of the
    Raft group continues to replicate: other nodes depend on the member, and none on its vault.
    """

    def __init__(self, clock: Clock, *, gentle: bool) -> None:
        self.now = clock.now
        self._gentle = gentle
        self._rested = clock.now()

    async def sleep(self, seconds: float) -> None:
        worked_s = self.now() - self._rested
        await asyncio.sleep(max(seconds, min(worked_s, PAUSE_S_MAX)) if self._gentle else seconds)
        self._rested = self.now()


class VaultFence(Protocol):
    """The fence between the vault and its readers: `node.fencing.fencing_component.FencingComponent`."""

    def opened(self, vault: Vault) -> ApplyGate:
        """Call as soon as the vault is open. Returns the gate for changes while the vault has fenced readers."""
        ...

    def recovering(self, begins: bool) -> None:
        """Call with True before a recovery begins, with False when the vault is complete again."""
        ...

    def closing(self) -> None:
        """Before the vault is closed, or if it could not be opened completely: no reader may use it any more."""
        ...


class NoFence:
    """For a vault without fenced readers."""

    def opened(self, vault: Vault) -> ApplyGate:
        return OpenGate()

    def recovering(self, begins: bool) -> None:
        """There are no readers."""

    def closing(self) -> None:
        """There are no readers."""


@dataclass(frozen=True, slots=True)
class OnVault:
    """Users of a node's vault: its components, its resources beside the vault, the fence of its readers."""

    components: Lifecycle = field(default_factory=lambda: Lifecycle([]))
    resources: Callable[[Vault], Resources] = lambda vault: NoResources()
    pin_life_s_max: float = PIN_LIFE_S_MAX
    fence: VaultFence = field(default_factory=NoFence)

    def with_part(self, part: Part, resources: Callable[[Vault], Resources] | None = None) -> OnVault:
        """Adds a component, on the same listeners. `resources`: of one that owns resources beside the vault."""
        components = Lifecycle([*self.components.parts, part], self.components.listeners)
        return replace(self, components=components, resources=resources or self.resources)


class VaultComponent(Component):
    """Call `catch_up` when the node has been admitted; after that it follows the cluster by itself."""

    def __init__(
        self,
        home: VaultHome,
        node: str,
        source: ClusterSource,
        on_vault: OnVault,
        clock: RecoveryClock,
        difference: Difference,
        beside: FlushFollower | None = None,
        *,
        local: Mapping[str, str] | None = None,
    ) -> None:
        """`beside`: of a member of the group, whose vault follows its store. `local`: the node's configuration."""
        self._beside = beside
        self.difference = difference
        self._home = home
        self._node = node
        self._local = local or {}
        self._source = source
        self._inner = on_vault.components
        self._on_vault = on_vault
        self._fence = on_vault.fence
        self._clock = clock
        self._vault: Vault | None = None
        self._port = ComponentPort(self._inner, lambda: self.vault)
        self._follower: Follower | None = None
        self._following: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._trouble: asyncio.Future[None] | None = None
        self._gate: ApplyGate = OpenGate()

    @property
    def vault(self) -> Vault:
        if self._vault is None:
            raise RuntimeError("the vault is not open: the node has not started, or has stopped")
        return self._vault

    @property
    def revision(self) -> int:
        """LV; 0 while the vault is not open."""
        return self._vault.revision if self._vault is not None else 0

    @property
    def cluster_id(self) -> str:
        """The cluster of the vault; empty if it has no lineage."""
        lineage = self._vault.lineage if self._vault is not None else None
        return lineage.cluster_id if lineage is not None else ""

    @property
    def begun(self) -> int:
        """How many recoveries this process has begun."""
        return self._follower.begun if self._follower is not None else 0

    @property
    def reports(self) -> list[RecoveryReport]:
        """Of the last recoveries of this process; one in progress is the last of them."""
        if self._follower is None:
            return []
        under_way = self._follower.under_way
        return [*self._follower.reports, *([under_way.report_now()] if under_way is not None else [])]

    @property
    def progress(self) -> RecoveryProgress | None:
        """Of the recovery in progress."""
        under_way = self._follower.under_way if self._follower is not None else None
        return under_way.progress if under_way is not None else None

    async def start(self) -> None:
        """Raises VaultError if the vault is refused."""
        self._trouble = asyncio.get_running_loop().create_future()
        vault = await self._home.open()
        try:
            self._keep_configuration(vault)
            self._gate = self._fence.opened(vault)
            self._follower = self._new_follower(vault)
        except BaseException:
            self._fence.closing()
            vault.close()
            raise
        self._vault = vault

    def _new_follower(self, vault: Vault) -> Follower:
        resources = self._on_vault.resources(vault)
        beside = self._beside
        world = World(vault, self._source, self._port, resources, self._clock, self.difference, self._gate, beside)
        settings = Settings(
            self._node,
            pin_life_s_max=self._on_vault.pin_life_s_max,
            batches_per_commit=BATCHES_PER_COMMIT if beside is None else 1,
        )
        progress_log = ProgressLog(self._clock.now)

        def recovers(begins: bool) -> None:
            self._fence.recovering(begins)
            progress_log.began(begins)

        return Follower(
            world,
            settings,
            on_recovering=recovers,
            on_progress=progress_log.went_on,
            on_report=self._home.keep,
        )

    def _keep_configuration(self, vault: Vault) -> None:
        """In a vault of this node or without lineage; another one is about to be refused, and stays unchanged."""
        kept = vault.config()
        changed = changes(kept, self._local)
        if changed and (vault.lineage is None or vault.lineage.node_id == self._node):
            vault.set_config(changed)
            if kept:
                names = ",".join(sorted(changed))
                log.info("configuration differs from that of the last start: node=%s options=%s", self._node, names)

    async def catch_up(self) -> int:
        """LV, when LM - LV is small enough. Raises RecoveryRefused, and errors of listeners."""
        follower = self._follower
        if follower is None:
            raise RuntimeError("the vault is not open: the node has not started, or has stopped")
        async with self._port.notifying:
            await self._stop_following()
        report = await follower.recover(running=self._port.started)
        log.info("recovered: case=%s lv=%d lm=%d mm=%d", _case(report), report.lv, report.lm, report.mm)
        self._following = asyncio.get_running_loop().create_task(self._follow(follower), name="follow")
        self._following.add_done_callback(self._on_end)
        if self._watching is None:
            self._watching = asyncio.get_running_loop().create_task(self._inner.wait(), name="components on the vault")
            self._watching.add_done_callback(self._on_end)
        return self.vault.revision

    async def _follow(self, follower: Follower) -> None:
        if self._beside is None:
            await follower.follow()
        else:
            leaping = self._port.leap
            await self._beside.follow(follower, self.vault, self._clock, self._listens, _others, self._gate, leaping)

    def _listens(self) -> bool:
        """Whether a component needs every single revision."""
        return self._inner.listeners.each_revision

    def _on_end(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._trouble is not None and not self._trouble.done():
            self._trouble.set_exception(error)

    async def run(self) -> None:
        """Raises the error that ended following the cluster: the next start continues from LV."""
        trouble = self._trouble
        if trouble is not None:
            await asyncio.wait({trouble})
            trouble.result()

    async def stop(self) -> None:
        await self._stop_following()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
        try:
            await self._inner.stop()
        finally:
            self._fence.closing()
            if self._vault is not None:
                self._vault.close()
                self._vault = None

    async def _stop_following(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
            self._following = None


def _case(report: RecoveryReport) -> str:
    return report.case.value if report.case is not None else "-"


async def _others() -> None:
    await asyncio.sleep(0)
