"""Which vaults a node may continue with, if their contents are known from outside."""

from __future__ import annotations

import pytest

from palisade.recovery.decision import (
    ClusterHistory,
    Decision,
    Options,
    RefusalReason,
    Replay,
    Snapshot,
    SnapshotReason,
    VaultState,
)
from tests.sim.checkers.recovery_decision import RecoveryDecision
from tests.sim.world import Settings, World


@pytest.mark.parametrize(
    ("decision", "minimal", "stays"),
    [(Replay(79, 91), 79, True), (Snapshot(SnapshotReason.COMPACTED), 80, False)],
)
def test_diverged_vault_stays_diverged_until_replaced(decision: Decision, minimal: int, stays: bool) -> None:
    """Strange 23: the revision at which it diverged was compacted, the next one was not; the replay detects it."""
    world = World(1, Settings())
    host = world.hosts["n1"]
    host.disk.foreign = RefusalReason.DIVERGED
    vault, cluster = VaultState(None, 78, b"another"), ClusterHistory("sim", 1, 91, minimal)
    RecoveryDecision(world)._judge(decision, vault, cluster, Options("n1"))
    assert host.disk.foreign is (RefusalReason.DIVERGED if stays else None)
    world.close()


@pytest.mark.parametrize("is_down", [True, False])
def test_vault_from_before_a_restore_is_judged_by_the_lost_history(is_down: bool) -> None:
    """Restores 22650: its node was paused with that response, and continued when all members were lost."""
    world = World(1, Settings())
    world.goes_on = True
    world.is_down = is_down
    world.hosts["n1"].disk.foreign = RefusalReason.OLDER_HISTORY
    vault, cluster = VaultState(None, 246, b"of before"), ClusterHistory("sim", 1, 251, 1)
    RecoveryDecision(world)._judge(Replay(247, 251), vault, cluster, Options("n1"))
    assert (RecoveryDecision.name in world.seen_by) is not is_down
    world.close()
