"""Which vaults a node may go on with, where it is known from outside what they are."""

from __future__ import annotations

import pytest

from recovery.decide import ClusterState, Decision, Options, RefusalReason, Replay, Snapshot, SnapshotReason, VaultState
from tests.sim.checkers.recovery_decision import RecoveryDecision
from tests.sim.world import Settings, World


@pytest.mark.parametrize(
    ("decision", "minimal", "stays"),
    [(Replay(79, 91), 79, True), (Snapshot(SnapshotReason.COMPACTED), 80, False)],
)
def test_a_vault_that_has_parted_unseen_is_still_that_until_it_is_replaced(
    decision: Decision, minimal: int, stays: bool
) -> None:
    """Strange 23: the revision at which it parted was compacted, the next one was not; the replay finds it out."""
    world = World(1, Settings())
    host = world.hosts["n1"]
    host.disk.foreign = RefusalReason.DIVERGED
    vault, cluster = VaultState(None, 78, b"another"), ClusterState("sim", 1, 91, minimal)
    RecoveryDecision(world)._judge(decision, vault, cluster, Options("n1"))
    assert host.disk.foreign is (RefusalReason.DIVERGED if stays else None)
    world.close()
