"""A node without a network: serves reads of its vault, marked as such (R8).

For maintenance: the cluster cannot be reached, or must not be, and the last state of this node has to be read. The node
contacts no other node; it listens on HTTP only. Every response is marked as coming from a vault without a cluster.
Nothing is changed, the vault included: the same folder starts in its cluster afterwards as before.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import NoReturn

from palisade.base.clock import SystemClock
from palisade.base.directory_lock import DirectoryLock
from palisade.node.component_adapters import ServerPart, cause_of_failure
from palisade.node.config import NodeConfig
from palisade.node.data_dir import claim_data_dir
from palisade.node.standalone_server import standalone_server
from palisade.raftgroup.errors import DataDirectoryError
from palisade.recovery.catchup import Difference
from palisade.recovery.errors import SourceUnavailable
from palisade.recovery.lifecycle import ComponentFailed, Lifecycle, Part
from palisade.recovery.ports import NoResources
from palisade.recovery.recovery import Recovery, Settings, World
from palisade.recovery.report import RecoveryRecorder
from palisade.recovery.report_file import keep_report
from palisade.recovery.vault_opening import opened
from palisade.vault.change import Revision, VaultEvent
from palisade.vault.directory import VaultDirectory
from palisade.vault.vault import Vault

log = logging.getLogger(__name__)


class StandaloneNode:
    """`start`, then `wait` until it fails or is cancelled, then `stop`."""

    def __init__(self, config: NodeConfig) -> None:
        """Raises VaultForeign if there is no vault (none is created), FolderError, DataDirectoryError."""
        self.config = config
        VaultDirectory(config.data_dir / "vault").require_file()
        claim_data_dir(config.data_dir, cluster=config.cluster, node=config.id)
        self._lock = DirectoryLock(config.data_dir, DataDirectoryError)
        self._clock = SystemClock()
        self._vault: Vault | None = None
        self._life: Lifecycle | None = None

    async def start(self) -> None:
        """Raises the error that refuses the vault (VaultError, RecoveryRefused), and OSError if the port cannot be
        bound."""
        config = self.config
        self._vault = vault = await opened(config.data_dir / "vault")
        recorder = RecoveryRecorder(config.id, self._clock.now)
        world = World(vault, NoNetwork(), NoListeners(), NoResources(), NoWaiting(), Difference())
        try:
            await Recovery(world, Settings(config.id, standalone=True), recorder).run()
        finally:
            keep_report(config.data_dir)(recorder.report)
        server = standalone_server(config, vault, recorder.report)
        self._life = Lifecycle([Part("http", ServerPart(server, config.http))])
        with cause_of_failure():
            await self._life.start()
        log.warning(
            "serving standalone, reads only: node=%s revision=%d http=%s", config.id, vault.revision, config.http
        )

    async def wait(self) -> None:
        """Until a component fails; raises its error."""
        if self._life is not None:
            with cause_of_failure():
                await self._life.wait()

    async def stop(self) -> None:
        """Safe to call in any state."""
        if self._life is not None:
            with contextlib.suppress(ComponentFailed):
                await self._life.stop()
        if self._vault is not None:
            self._vault.close()
            self._vault = None
        self._lock.release()


class NoWaiting:
    """The clock of a recovery without a network: no time passes in it."""

    def now(self) -> float:
        return 0.0

    async def sleep(self, seconds: float) -> None:
        """There is nothing to wait for."""


class NoListeners:
    """No component follows the vault."""

    async def start(self) -> None:
        """There is nothing to start."""

    async def revision(self, revision: Revision) -> None:
        """No component follows the vault."""

    async def difference(self, revision: int, events: Sequence[VaultEvent], last: bool) -> None:
        """No component follows the vault."""


async def _alone(*_: object, **__: object) -> NoReturn:
    raise SourceUnavailable("this node runs without a cluster (--standalone)")


class NoNetwork:
    """The source of a recovery in standalone mode, which sends no request: each one would raise SourceUnavailable."""

    state = changes = pin = unpin = sums = rows = spans = fingerprints = staticmethod(_alone)
