"""The topology decisions, as functions of the records and of this node's physical topology: joins, ends of recovery,
departures and drops. Pure.

A verdict is one of: write this record, keep the present one, retry later, reject. The registrar writes only if the
records are unchanged since the decision (`registrar.py`), so any node can decide, and several can at once.

These rules imply:
- A node is in the logical topology only after its join request was validated *and* it reported that it has recovered,
  in this incarnation. Returning to the physical topology is not enough: a dropped node has to join again.
- A name belongs to one process at a time. A request counts only from the instance that has the name in the physical
  topology, where the nodes resolve conflicts (`swim/protocol.py`).
- A lost answer is harmless: the same request of the same instance gets the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace

from palisade.topology.records import ClusterRules, NodeRecord, NodeRole, NodeStanding
from palisade.wire.topology_errors import Reason

NAME_TAKEN_HINT = "stop the other one, or give this node another --id"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """`cluster_id`: of the node's vault or store; empty if it has never been in a cluster."""

    cluster: str
    protocol: int
    token: str | None
    name: str
    role: NodeRole
    instance: str
    attempt: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """Write this record."""

    record: NodeRecord


@dataclass(frozen=True, slots=True)
class Keep:
    """The present record already is what was requested."""

    record: NodeRecord


@dataclass(frozen=True, slots=True)
class Later:
    """The same request may succeed shortly."""

    text: str


@dataclass(frozen=True, slots=True)
class RejectJoin:
    """The request cannot succeed."""

    reason: Reason
    text: str


Verdict = WriteRecord | Keep | Later | RejectJoin


@dataclass(frozen=True, slots=True)
class Presence:
    """A name in the physical topology: the process that has it, and whether that is live."""

    instance: str
    live: bool


Physical = Mapping[str, Presence]
"""By name."""
TokenCheck = Callable[[str | None, bytes], bool]


def judge_join(
    request: JoinRequest,
    rules: ClusterRules | None,
    cluster_id: str,
    known: NodeRecord | None,
    presence: Presence | None,
    token_fits: TokenCheck,
    *,
    sees_leader: bool = True,
) -> Verdict:
    """`known`: the record under the name. `presence`: the process with that name in the deciding node's physical
    topology. `sees_leader`: whether the leader is live in that topology; a leader drops nodes that it does not see."""
    if rules is None:
        return Later("the cluster is not initialized yet; its first leader initializes it once the members are running")
    refused = _refusal(request, rules, cluster_id, token_fits)
    if refused is not None:
        return refused
    if known is not None and known.instance == request.instance:
        if request.attempt < known.attempt:
            return RejectJoin(
                Reason.SUPERSEDED,
                f"join attempt {request.attempt} of {request.name} is superseded by attempt {known.attempt}",
            )
        if request.attempt == known.attempt and known.standing is not NodeStanding.GONE:
            return Keep(known)
    if presence is None or not presence.live:
        return Later(f"{request.name} is not in the physical topology yet; gossip from its seeds will add it")
    if presence.instance != request.instance:
        return Later(
            f"another process has the name {request.name} in the physical topology; if it is running, "
            f"{NAME_TAKEN_HINT}; if it has ended, that is detected within seconds"
        )
    if known is not None and known.instance == request.instance and not sees_leader:
        return Later(
            f"{request.name} was dropped and this node does not see the leader in the physical topology, so the leader "
            "could drop it again; gossip resolves this within seconds"
        )
    incarnation = known.incarnation + 1 if known is not None else 1
    return WriteRecord(
        NodeRecord(
            request.name, request.role, NodeStanding.VALIDATED, request.instance, request.attempt, incarnation,
            dict(request.addresses),
        )
    )  # fmt: skip


def _refusal(request: JoinRequest, rules: ClusterRules, cluster_id: str, token_fits: TokenCheck) -> RejectJoin | None:
    if request.cluster != rules.cluster:
        return RejectJoin(
            Reason.WRONG_CLUSTER,
            f"this is cluster {rules.cluster}, but {request.name} requested to join {request.cluster}: correct "
            "--cluster or the address of the cluster",
        )
    if request.protocol != rules.protocol:
        return RejectJoin(
            Reason.WRONG_VERSION,
            f"{request.name} uses version {request.protocol} of the join protocol, the cluster version "
            f"{rules.protocol}: run a matching release",
        )
    if not token_fits(request.token, rules.token):
        what = "a wrong join token" if request.token else "no join token"
        return RejectJoin(
            Reason.NO_PERMISSION,
            f"{request.name} sent {what}: set the token that the cluster was initialized with, using "
            "PALISADE_JOIN_TOKEN or --join-token",
        )
    if request.cluster_id and request.cluster_id != cluster_id:
        return RejectJoin(
            Reason.FOREIGN_CLUSTER,
            f"the data of {request.name} belong to the cluster with ID {request.cluster_id}; this cluster has the same "
            f"name, {rules.cluster}, but ID {cluster_id}: use an empty data folder, or join the original cluster",
        )
    return None


def judge_recovered(name: str, instance: str, incarnation: int, revision: int, known: NodeRecord | None) -> Verdict:
    """RecoveryFinished: `revision` is LV of the node."""
    if known is None or known.instance != instance or known.incarnation != incarnation:
        return RejectJoin(Reason.SUPERSEDED, f"incarnation {incarnation} of {name} is not the current one: join again")
    if known.standing is NodeStanding.GONE:
        return RejectJoin(
            Reason.NOT_VALIDATED,
            f"{name} was dropped from the topology during its recovery ({known.reason}): join again",
        )
    if known.standing is NodeStanding.ACTIVE:
        return Keep(known)
    return WriteRecord(replace(known, standing=NodeStanding.ACTIVE, recovered=revision))


def judge_leave(name: str, instance: str, known: NodeRecord | None) -> Verdict:
    """A node announces that it leaves."""
    if known is None or known.instance != instance:
        return RejectJoin(Reason.SUPERSEDED, f"{name} has no record of this process: nothing to leave")
    return Keep(known) if known.standing is NodeStanding.GONE else WriteRecord(gone(known, "it has left"))


def gone(record: NodeRecord, reason: str) -> NodeRecord:
    return replace(record, standing=NodeStanding.GONE, reason=reason)


def due_drops(
    records: list[NodeRecord], physical: Physical, unseen_long: bool, removed: Set[str] = frozenset()
) -> list[NodeRecord]:
    """The nodes that the leader has to drop: its physical topology has lost them, or the Raft group has removed them.

    `unseen_long`: the leader has watched long enough to drop nodes that it has never seen. `removed`: members that were
    removed and not added again. A node that joins is validated before it is added, so only an active one is dropped.
    """
    due = []
    for record in records:
        if record.standing is NodeStanding.GONE:
            continue
        presence = physical.get(record.name)
        if record.name in removed and record.role is NodeRole.VOTER and record.standing is NodeStanding.ACTIVE:
            due.append(gone(record, "it was removed from the Raft group"))
        elif presence is None:
            if unseen_long:
                due.append(gone(record, "it has not been seen since the leader was elected"))
        elif presence.instance != record.instance:
            due.append(gone(record, "another process has its name"))
        elif not presence.live:
            due.append(gone(record, "it has left the physical topology"))
    return due
