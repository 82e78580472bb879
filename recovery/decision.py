"""How to get from a vault to the cluster's state: the table of seed 001, with its refusals. Pure (R2 to R8).

LV is the vault's last applied revision, LM the latest and MM the minimal one of the metadata store. The first row that
applies decides, so a vault that any row refuses is not changed:

    node          another one                                          refuse
    standalone    nothing ever applied, or a snapshot not finished     refuse
                  else                                                 join
    cluster       another one                                          refuse
    history       another generation, older or newer                   refuse
    case d        LM < LV (or < a part of a later snapshot)            refuse
    diverged      the cluster retains its digest at LV, another one    refuse
    unfinished    a snapshot was begun                                 snapshot, whatever MM is
    case a        LM = LV                                              join
    case c        MM > LV + 1                                          snapshot
    case b        else; replay, unless that costs more than a snapshot

A vault without a lineage has no history that could contradict: it adopts that of the cluster it joins.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from palisade.vault.position import VaultLineage

RESET = "put the vault aside (palisade vault reset) and start the node again: it takes a snapshot, nothing is lost"


class Case(enum.Enum):
    """Seed 001's letters."""

    A = "a"
    B = "b"
    C = "c"
    D = "d"
    STANDALONE = "standalone"


class SnapshotReason(enum.Enum):
    COMPACTED = "the revisions after LV are compacted"
    COST = "replaying would cost more than a snapshot"
    UNFINISHED = "an earlier snapshot was not finished"
    STUCK = "revisions arrive faster than the listeners handle them"


class RefusalReason(enum.Enum):
    """The names are stable: scenarios, reports and metrics show them."""

    AHEAD = "ahead"
    FOREIGN_NODE = "foreign-node"
    FOREIGN_CLUSTER = "foreign-cluster"
    OLDER_HISTORY = "older-history"
    NEWER_HISTORY = "newer-history"
    DIVERGED = "diverged"
    STANDALONE_EMPTY = "standalone-empty"
    STANDALONE_UNFINISHED = "standalone-unfinished"


@dataclass(frozen=True, slots=True)
class VaultState:
    """`highest`: the latest revision of which the vault may contain a part; above LV in an unfinished snapshot."""

    lineage: VaultLineage | None
    revision: int
    chain: bytes
    unfinished: bool = False
    highest: int = 0


@dataclass(frozen=True, slots=True)
class ClusterHistory:
    """By one linearizable read. `chain_at_lv`: the cluster's digest at LV; None if it is not retained."""

    cluster_id: str
    generation: int
    latest: int
    minimal: int
    chain_at_lv: bytes | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """`replay_s`, `snapshot_s`: the estimated time of each way in seconds (`cost_estimate.py`)."""

    node_id: str
    standalone: bool = False
    replay_s: float = 0.0
    snapshot_s: float = float("inf")
    catch_up_difference: int = 100


@dataclass(frozen=True, slots=True)
class Join:
    """The vault equals the cluster's state (case a)."""

    case: Case


@dataclass(frozen=True, slots=True)
class Replay:
    """Revisions `first` to `last`, one by one, through the listeners (case b)."""

    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The latest state, by difference (case c)."""

    reason: SnapshotReason


@dataclass(frozen=True, slots=True)
class Refuse:
    """The node does not start. `what` is the cause, as a sentence; `remedy` is what to do."""

    reason: RefusalReason
    what: str
    remedy: str


Decision = Join | Replay | Snapshot | Refuse


def decide(vault: VaultState, cluster: ClusterHistory | None, options: Options) -> Decision:
    """`cluster` is None in standalone mode only, where it is not used."""
    refusal = _of_another_node(vault, options)
    if refusal is not None:
        return refusal
    if options.standalone:
        return _standalone(vault)
    if cluster is None:
        raise ValueError("without the state of the cluster only standalone mode can be decided")
    refusal = _whose(vault, cluster) or _behind(vault, cluster) or _diverged(vault, cluster)
    if refusal is not None:
        return refusal
    if vault.unfinished:
        return Snapshot(SnapshotReason.UNFINISHED)
    if cluster.latest == vault.revision:
        return Join(Case.A)
    if cluster.minimal > vault.revision + 1:
        return Snapshot(SnapshotReason.COMPACTED)
    if is_too_costly(cluster.latest - vault.revision, options):
        return Snapshot(SnapshotReason.COST)
    return Replay(vault.revision + 1, cluster.latest)


def is_too_costly(missed: int, options: Options) -> bool:
    """Whether a replay would cost more than a snapshot; never if LM - LV is within the catch-up difference."""
    return missed > options.catch_up_difference and options.replay_s > options.snapshot_s


def case_of(decision: Decision) -> Case:
    """For reports. Refusals other than case d are assigned to it as well."""
    match decision:
        case Join(case):
            return case
        case Replay():
            return Case.B
        case Snapshot():
            return Case.C
        case Refuse(reason):
            of_standalone = reason in (RefusalReason.STANDALONE_EMPTY, RefusalReason.STANDALONE_UNFINISHED)
            return Case.STANDALONE if of_standalone else Case.D


def _standalone(vault: VaultState) -> Decision:
    if vault.unfinished:
        return Refuse(
            RefusalReason.STANDALONE_UNFINISHED,
            "A snapshot was begun and not finished, so the vault is between two revisions and can't be read.",
            "start the node in its cluster once: it finishes the snapshot",
        )
    if vault.revision == 0:
        return Refuse(
            RefusalReason.STANDALONE_EMPTY,
            "The vault has no state of the cluster, so there is nothing to serve without one.",
            "start the node in its cluster first",
        )
    return Join(Case.STANDALONE)


def _of_another_node(vault: VaultState, options: Options) -> Refuse | None:
    mine = vault.lineage
    if mine is None or mine.node_id == options.node_id:
        return None
    return Refuse(
        RefusalReason.FOREIGN_NODE,
        f"The vault belongs to node {mine.node_id}, and this is node {options.node_id}.",
        f"if two vaults were swapped, give each node its own back; else {RESET}",
    )


def _whose(vault: VaultState, cluster: ClusterHistory) -> Refuse | None:
    mine = vault.lineage
    if mine is None:
        return None
    if mine.cluster_id != cluster.cluster_id:
        return Refuse(
            RefusalReason.FOREIGN_CLUSTER,
            f"The vault belongs to cluster {mine.cluster_id}, and this is cluster {cluster.cluster_id}.",
            f"let the node join the cluster that it belongs to, or, to move it to this cluster, {RESET}",
        )
    if mine.generation < cluster.generation:
        return Refuse(
            RefusalReason.OLDER_HISTORY,
            f"The vault is of generation {mine.generation}, the cluster of generation {cluster.generation}: a backup "
            "was restored, or a new cluster forced, so this cluster may never have had the vault's content.",
            RESET,
        )
    if mine.generation > cluster.generation:
        return Refuse(
            RefusalReason.NEWER_HISTORY,
            f"The vault is of generation {mine.generation}, the cluster of generation {cluster.generation}: its "
            "members are from before a restore or a forced start, and another cluster has replaced them.",
            f"stop them and start the members of generation {mine.generation}; if they are meant to stay, {RESET}",
        )
    return None


def _behind(vault: VaultState, cluster: ClusterHistory) -> Refuse | None:
    highest = max(vault.revision, vault.highest)
    if cluster.latest >= highest:
        return None
    return Refuse(
        RefusalReason.AHEAD,
        f"The vault is at revision {highest}, the cluster only at {cluster.latest}: the cluster has lost acknowledged "
        "writes, which Raft rules out while a majority of its disks is intact.",
        "find out whether voters were wiped or replaced by copies; keep this vault, it may be the only copy (palisade "
        f"vault export). When that is settled, {RESET}",
    )


def _diverged(vault: VaultState, cluster: ClusterHistory) -> Refuse | None:
    if vault.revision == 0 or cluster.chain_at_lv is None or cluster.chain_at_lv == vault.chain:
        return None
    return Refuse(
        RefusalReason.DIVERGED,
        f"At revision {vault.revision} the vault has the digest {vault.chain.hex()}, the cluster "
        f"{cluster.chain_at_lv.hex()}: they have different histories.",
        "look for damage: palisade vault verify checks this vault, and the members must have equal digests at one "
        f"revision (GET /v1/digest). Keep what differs, then {RESET}",
    )
