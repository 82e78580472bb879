"""The recovery case of a node is the one in the table of seed 001, for its vault and the cluster (R3 to R8).

The table is repeated here as plainly as possible. Only an injected fault makes a vault foreign, ahead or of another
history, and determines the reason of the refusal; any other refusal is wrong. While there is no cluster, a node may
still continue by the last response of the lost one, if its vault belongs to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import palisade.recovery.follower
import palisade.recovery.recovery
from palisade.recovery.decision import (
    ClusterHistory,
    Decision,
    Join,
    Options,
    RefusalReason,
    Refuse,
    Replay,
    Snapshot,
    VaultState,
)
from tests.sim.world import Checker


class RecoveryDecision(Checker):
    name = "recovery decision"

    @contextmanager
    def looking(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for module in (palisade.recovery.recovery, palisade.recovery.follower):
                patch.setattr(module, "decide", self._observed(module.decide))  # type: ignore[attr-defined]
            yield

    def _observed(self, decide: Any) -> Any:
        def observed(vault: VaultState, cluster: ClusterHistory | None, options: Options) -> Decision:
            decision: Decision = decide(vault, cluster, options)
            assert cluster is not None, "no node starts standalone here"
            self._judge(decision, vault, cluster, options)
            return decision

        return observed

    def _judge(self, decision: Decision, vault: VaultState, cluster: ClusterHistory, options: Options) -> None:
        what = f"with LV {vault.revision}, LM {cluster.latest}, MM {cluster.minimal}"
        host = self.world.hosts[options.node_id]
        if host.foreign is not None and not self.world.is_down:
            if isinstance(decision, Refuse) and decision.reason is host.foreign:
                return
            if host.foreign is not RefusalReason.DIVERGED or cluster.chain_at_lv is not None:
                self.fail(f"{options.node_id} takes {decision}, and its vault must be refused: {host.foreign.value}")
            if not isinstance(decision, Replay):
                host.disk.foreign = None
        if isinstance(decision, Refuse):
            self.fail(f"{options.node_id} does not recover: {decision.reason.value}, {what}")
        allowed = ways(vault, cluster, options)
        if row(decision) not in allowed or (isinstance(decision, Replay) and decision.first != vault.revision + 1):
            self.fail(f"{options.node_id} recovers by {decision} {what}; correct is {' or '.join(allowed)}")


def row(decision: Decision) -> str:
    match decision:
        case Snapshot(reason):
            return f"snapshot {reason.name.lower()}"
        case Refuse(reason):
            return f"refuse {reason.value}"
        case Join(case):
            return f"join {case.value}"
    return "replay"


def ways(vault: VaultState, cluster: ClusterHistory, options: Options) -> tuple[str, ...]:
    """The correct cases; empty if there is none."""
    missed = cluster.latest - vault.revision
    if missed < 0 or vault.highest > cluster.latest:
        return ()
    if vault.unfinished:
        return ("snapshot unfinished",)
    if missed == 0:
        return ("join a",)
    if cluster.minimal > vault.revision + 1:
        return ("snapshot compacted",)
    costs_more = options.replay_s > options.snapshot_s and missed > options.catch_up_difference
    return ("snapshot cost",) if costs_more else ("replay",)
