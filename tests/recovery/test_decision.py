"""The decision table, tested for every combination of its inputs (issue 3, "Shown by" 2; seed 001; R2 to R8)."""

from __future__ import annotations

from itertools import product

import pytest

from palisade.recovery.decision import (
    Case,
    ClusterHistory,
    Decision,
    Join,
    Options,
    RefusalReason,
    Refuse,
    Replay,
    Snapshot,
    SnapshotReason,
    VaultState,
    case_of,
    decide,
)
from palisade.recovery.recovery import reason_of
from palisade.vault.position import VaultLineage

OURS, THEIRS = b"o" * 16, b"t" * 16
LINEAGES = (
    None,
    VaultLineage("c", 2, "n"),
    VaultLineage("other", 2, "n"),
    VaultLineage("c", 1, "n"),
    VaultLineage("c", 3, "n"),
    VaultLineage("c", 2, "m"),
    VaultLineage("other", 1, "m"),
)
REVISIONS = (0, 1, 2, 99, 100, 101, 1000)
LATEST = (1, 100, 1000)
BEYOND = (0, 1, 500)
"""How much later than LV a part of an unfinished snapshot is."""
MINIMAL = (-1, 0, 1, 2, 3, 10**9)
"""MM less LV: MM = LV + 1 and MM = LV + 2 exactly are among them; the last one stands for MM = LM."""
COSTS = ((0.0, float("inf")), (5.0, 5.0), (9.0, 5.0))
DIFFERENCES = (0, 100)


def expected(vault: VaultState, cluster: ClusterHistory, options: Options) -> object:
    """The table of the module's docstring in another form: conditions, the first match applies."""
    mine, lv, lm, mm = vault.lineage, vault.revision, cluster.latest, cluster.minimal
    highest = max(lv, vault.highest)
    costly = lm - lv > options.catch_up_difference and options.replay_s > options.snapshot_s
    reason, way = RefusalReason, SnapshotReason
    rows = [
        (mine is not None and mine.node_id != options.node_id, reason.FOREIGN_NODE),
        (options.standalone and vault.unfinished, reason.STANDALONE_UNFINISHED),
        (options.standalone and lv == 0, reason.STANDALONE_EMPTY),
        (options.standalone, Join(Case.STANDALONE)),
        (mine is not None and mine.cluster_id != cluster.cluster_id, reason.FOREIGN_CLUSTER),
        (mine is not None and mine.generation < cluster.generation, reason.OLDER_HISTORY),
        (mine is not None and mine.generation > cluster.generation, reason.NEWER_HISTORY),
        (lm < highest, reason.AHEAD),
        (lv > 0 and cluster.chain_at_lv not in (None, vault.chain), reason.DIVERGED),
        (vault.unfinished, Snapshot(way.UNFINISHED)),
        (lm == lv, Join(Case.A)),
        (mm > lv + 1, Snapshot(way.COMPACTED)),
        (costly, Snapshot(way.COST)),
        (True, Replay(lv + 1, lm)),
    ]
    return next(outcome for holds, outcome in rows if holds)


def test_decision_for_every_combination_of_inputs() -> None:
    """Each outcome, reason and case occurs, and none differs from the table."""
    seen: set[object] = set()
    count = 0
    combinations = product(
        LINEAGES, REVISIONS, (None, *BEYOND), LATEST, MINIMAL, (None, OURS, THEIRS), COSTS, DIFFERENCES, (False, True)
    )
    for lineage, lv, beyond, lm, mm_offset, chain_at_lv, costs, difference, standalone in combinations:
        vault = VaultState(lineage, lv, OURS, beyond is not None, lv + (beyond or 0))
        cluster = ClusterHistory("c", 2, lm, min(max(1, lv + mm_offset), lm), chain_at_lv)
        options = Options("n", standalone, *costs, difference)
        decision = decide(vault, cluster, options)
        outcome: object = decision.reason if isinstance(decision, Refuse) else decision
        assert outcome == expected(vault, cluster, options), (vault, cluster, options)
        check_sense(decision, vault, cluster)
        seen |= {type(decision), case_of(decision), getattr(decision, "reason", None)}
        count += 1
    assert count == 7 * 7 * 4 * 3 * 6 * 3 * 3 * 2 * 2
    missing = {Join, Replay, Snapshot, Refuse, *Case, *RefusalReason, *SnapshotReason} - seen
    assert missing == {SnapshotReason.STUCK}, "which a replay under way decides, not the table"


def check_sense(decision: Decision, vault: VaultState, cluster: ClusterHistory) -> None:
    """Invariants that hold independently of the table."""
    if isinstance(decision, Refuse):
        assert decision.what.endswith(".")
        assert decision.remedy
    if isinstance(decision, Replay):
        assert cluster.minimal <= decision.first == vault.revision + 1 <= decision.last == cluster.latest
        assert not vault.unfinished
    if isinstance(decision, Join):
        assert not vault.unfinished
        assert decision.case is Case.STANDALONE or vault.revision == cluster.latest
    if isinstance(decision, Snapshot):
        assert cluster.latest >= max(vault.revision, vault.highest)


@pytest.mark.parametrize(
    ("lv", "lm", "mm", "case"),
    [
        (0, 1, 1, Case.B),
        (0, 50, 1, Case.B),
        (0, 50, 2, Case.C),
        (50, 50, 1, Case.A),
        (50, 50, 50, Case.A),
        (49, 50, 50, Case.B),
        (48, 50, 50, Case.C),
        (10, 50, 11, Case.B),
        (10, 50, 12, Case.C),
        (51, 50, 1, Case.D),
    ],
)
def test_decision_at_the_limits_of_each_case(lv: int, lm: int, mm: int, case: Case) -> None:
    """LV = 0; LV = LM; LV = LM - 1; MM = LV + 1 and MM = LV + 2 exactly; LV beyond LM."""
    vault = VaultState(VaultLineage("c", 1, "n"), lv, OURS)
    assert case_of(decide(vault, ClusterHistory("c", 1, lm, mm), Options("n"))) is case


def test_refusals_name_both_sides_and_the_remedy() -> None:
    vault = VaultState(VaultLineage("c", 1, "n"), 70, OURS)
    refusals = {
        RefusalReason.AHEAD: (ClusterHistory("c", 1, 60, 1), ["70", "60", "export", "reset"]),
        RefusalReason.FOREIGN_CLUSTER: (ClusterHistory("x", 1, 90, 1), ["cluster c", "cluster x"]),
        RefusalReason.OLDER_HISTORY: (ClusterHistory("c", 2, 90, 1), ["generation 1", "generation 2", "reset"]),
        RefusalReason.NEWER_HISTORY: (ClusterHistory("c", 0, 90, 1), ["generation 1", "generation 0"]),
        RefusalReason.DIVERGED: (ClusterHistory("c", 1, 90, 1, THEIRS), [OURS.hex(), THEIRS.hex(), "verify"]),
    }
    for reason, (cluster, words) in refusals.items():
        decision = decide(vault, cluster, Options("n"))
        assert isinstance(decision, Refuse)
        assert decision.reason is reason
        assert [word for word in words if word not in decision.what + decision.remedy] == []


def test_only_standalone_mode_decides_without_the_cluster() -> None:
    vault = VaultState(None, 5, OURS)
    assert decide(vault, None, Options("n", standalone=True)) == Join(Case.STANDALONE)
    with pytest.raises(ValueError, match="only standalone mode"):
        decide(vault, None, Options("n"))


def test_reason_of_a_replay_names_one_revision_once() -> None:
    """It was "revisions 7 to 7 were missed"."""
    assert reason_of(Replay(7, 7)) == "revision 7 was missed and is retained"
    assert reason_of(Replay(7, 9)) == "revisions 7 to 9 were missed and are retained"
