"""The disk is full at each commit of a recovery, once: a clear error, nothing lost (issue 3, "Bad input": full disk).

tests/vault/test_full_disk.py shows that a failed commit of a backend changes nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest

from palisade.metastore.requests import Put
from palisade.recovery.report import RecoveryOutcome
from palisade.vault.errors import VaultUnusable
from palisade.vault.tables import Changes, VaultTable
from palisade.vault.vault import Vault
from tests.support.recovery_ground import Ground
from tests.support.recovery_world import Node
from tests.support.vault_feed import items_of


class FullDisk:
    """Has no space for one commit: the one with this number, or for all from it on."""

    def __init__(self, node: Node, full_at: int, *, stays_full: bool = False) -> None:
        self.commits = 0
        self._full_at, self._stays_full = full_at, stays_full
        backend = node.vault.backend
        self._commit = backend.commit
        backend.commit = self.commit  # type: ignore[method-assign]

    def commit(self, changes: Changes, cleared: Sequence[VaultTable] = ()) -> None:
        self.commits += 1
        if self.commits == self._full_at or (self._stays_full and self.commits > self._full_at):
            raise VaultUnusable("No space left on device. It holds what it held before: make room")
        self._commit(changes, cleared)


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small chunks, so that a snapshot has many commits."""
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 8)
    monkeypatch.setattr("palisade.recovery.store_source.SLICES_PER_CHUNK", 1)


def missed_some(ground: Ground) -> None:
    """Case b instead: nothing is compacted, and the listeners are slow, so that there are several commits."""
    for number in range(40):
        ground.cluster.do(Put(b"/k/%03d" % number, b"once more"))


async def snapshot() -> Ground:
    return await Ground().prepare()


async def replay() -> Ground:
    ground = await snapshot()
    await ground.node().recover()
    missed_some(ground)
    return ground


async def begun(ground: Ground, running: bool) -> Node:
    node = ground.node()
    node.recorded.on_revision = lambda _: setattr(node.clock, "time", node.clock.time + 0.05)
    if running:
        await node.recorded.start()
    return node


def held(vault: Vault) -> tuple[object, ...]:
    return vault.position, vault.recovering, vault.sums, vault.lineage


@pytest.mark.parametrize("stays_full", [False, True], ids=["for one commit", "from then on"])
@pytest.mark.parametrize("running", [False, True], ids=["at a start", "while it runs"])
@pytest.mark.parametrize("make", [snapshot, replay])
async def test_full_disk_at_each_commit_loses_nothing(
    make: Callable[[], Awaitable[Ground]], running: bool, stays_full: bool
) -> None:
    ground = await make()
    node = await begun(ground, running)
    disk = FullDisk(node, 0)
    await node.recover(running=running)
    node.check()
    undisturbed, count = (items_of(node.vault), dict(ground.shelf.there)), disk.commits
    assert count > 5
    for full_at in range(1, count + 1):
        ground = await make()
        node = await begun(ground, running)
        lv = node.vault.revision
        FullDisk(node, full_at, stays_full=stays_full)
        with pytest.raises(VaultUnusable, match="make room"):
            await node.recover(running=running)
        (report,) = node.follower.reports
        assert (report.outcome, "make room" in report.error) == (RecoveryOutcome.FAILED, True)
        assert lv <= node.vault.revision <= ground.cluster.store.revision
        again = ground.node()
        assert held(again.vault) == held(node.vault), "memory has not gone ahead of the disk"
        await again.recover()
        again.check()
        assert (items_of(again.vault), ground.shelf.there) == undisturbed
