"""Who is let in, who has recovered, who is gone: the decisions, as functions of what is known. Pure.

Each looks at the records and at the physical topology as this node sees it, and comes to one of four ends: write this,
nothing is to be written, try again later, refused for good. Whoever carries it out writes only if the records are still
those that were looked at (`registrar.py`), so it does not matter which node decides, or how many at once.

What follows from these rules:
- A node is in the logical topology only after its request was validated *and* it has said that it has recovered, in
  this incarnation. To come back to the physical topology is not enough: whoever was dropped has to join again.
- Under one name there is one process at a time: a request counts only from the instance that the physical topology has
  under the name, and there the nodes settle who that is (`swim/protocol.py`).
- A lost answer does no harm: the same request of the same instance has the same answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from node.topology.errors import Reason
from node.topology.records import ClusterRules, NodeRecord, Role, Standing

NAME_TAKEN_HINT = "stop the other one, or give this node another --id"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """What a node says of itself. `cluster_id`: of its vault or store, empty where it has never been in a cluster."""

    cluster: str
    protocol: int
    token: str | None
    name: str
    role: Role
    instance: str
    attempt: int
    addresses: Mapping[str, str] = field(default_factory=dict)
    cluster_id: str = ""


@dataclass(frozen=True, slots=True)
class Write:
    """Let it be so."""

    record: NodeRecord


@dataclass(frozen=True, slots=True)
class Keep:
    """It is so already."""

    record: NodeRecord


@dataclass(frozen=True, slots=True)
class Later:
    """Not now; the same request may succeed in a moment."""

    text: str


@dataclass(frozen=True, slots=True)
class Reject:
    """Never, as it is: the node stops and says why."""

    reason: Reason
    text: str


Verdict = Write | Keep | Later | Reject


@dataclass(frozen=True, slots=True)
class Presence:
    """A name in the physical topology: which process has it, and whether it is there."""

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
    """`known`: the record under the name; `presence`: who has the name in the physical topology, as the node sees it
    that judges; `sees_leader`: whether that one has the leader in it, who may drop whom it does not see."""
    if rules is None:
        return Later("the cluster is not initialized yet: its first leader does that, once its members are there")
    refused = _refusal(request, rules, cluster_id, token_fits)
    if refused is not None:
        return refused
    if known is not None and known.instance == request.instance:
        if request.attempt < known.attempt:
            return Reject(Reason.SUPERSEDED, f"{request.name} has asked again since: this answer is of no use any more")
        if request.attempt == known.attempt and known.standing is not Standing.GONE:
            return Keep(known)
    if presence is None or not presence.live:
        return Later(f"{request.name} is not in the physical topology yet: it is known once a seed has heard of it")
    if presence.instance != request.instance:
        return Later(
            f"another process has the name {request.name} in the physical topology; if it runs, {NAME_TAKEN_HINT}; if "
            "it has ended, that is found out within seconds"
        )
    if known is not None and known.instance == request.instance and not sees_leader:
        return Later(
            f"{request.name} was dropped, and the leader is not yet back in the physical topology here: it would be "
            "dropped again; they find each other within seconds"
        )
    incarnation = known.incarnation + 1 if known is not None else 1
    return Write(
        NodeRecord(
            request.name, request.role, Standing.VALIDATED, request.instance, request.attempt, incarnation,
            dict(request.addresses),
        )
    )  # fmt: skip


def _refusal(request: JoinRequest, rules: ClusterRules, cluster_id: str, token_fits: TokenCheck) -> Reject | None:
    if request.cluster != rules.cluster:
        return Reject(
            Reason.WRONG_CLUSTER,
            f"this is cluster {rules.cluster}, and {request.name} wants to join {request.cluster}: correct --cluster, "
            "or the address that it asks",
        )
    if request.protocol != rules.protocol:
        return Reject(
            Reason.WRONG_VERSION,
            f"{request.name} speaks version {request.protocol} of the join protocol, the cluster {rules.protocol}: run "
            "a release that speaks that one",
        )
    if not token_fits(request.token, rules.token):
        what = "a wrong join token" if request.token else "no join token"
        return Reject(
            Reason.NO_PERMISSION,
            f"{request.name} has shown {what}: give it the one that the cluster was initialized with, with "
            "PALISADE_JOIN_TOKEN or --join-token",
        )
    if request.cluster_id and request.cluster_id != cluster_id:
        return Reject(
            Reason.FOREIGN_CLUSTER,
            f"the data of {request.name} belong to a cluster with id {request.cluster_id}, this one has id "
            f"{cluster_id} and the same name {rules.cluster}: give the node an empty data folder, or join "
            "it where it belongs",
        )
    return None


def judge_recovered(name: str, instance: str, incarnation: int, revision: int, known: NodeRecord | None) -> Verdict:
    """RecoveryFinished: `revision` is LV of the node."""
    if known is None or known.instance != instance or known.incarnation != incarnation:
        return Reject(Reason.SUPERSEDED, f"incarnation {incarnation} of {name} is not the current one: join again")
    if known.standing is Standing.GONE:
        return Reject(
            Reason.NOT_VALIDATED, f"{name} was dropped from the topology meanwhile ({known.reason}): join again"
        )
    if known.standing is Standing.ACTIVE:
        return Keep(known)
    return Write(replace(known, standing=Standing.ACTIVE, recovered=revision))


def judge_leave(name: str, instance: str, known: NodeRecord | None) -> Verdict:
    """A node leaves in good order. Nothing happens for one that was never in."""
    if known is None or known.instance != instance:
        return Reject(Reason.SUPERSEDED, f"{name} is another process now: nothing is left to leave")
    return Keep(known) if known.standing is Standing.GONE else Write(gone(known, "it has left"))


def gone(record: NodeRecord, reason: str) -> NodeRecord:
    return replace(record, standing=Standing.GONE, reason=reason)


def due_drops(records: list[NodeRecord], physical: Physical, unseen_long: bool) -> list[NodeRecord]:
    """Who is to be dropped from the topology, as the leader sees it: those that the physical topology has lost.

    `unseen_long`: this leader has looked long enough that a node that is not in its view at all is not there.
    """
    due = []
    for record in records:
        if record.standing is Standing.GONE:
            continue
        presence = physical.get(record.name)
        if presence is None:
            if unseen_long:
                due.append(gone(record, "it was not seen since the leader took over"))
        elif presence.instance != record.instance:
            due.append(gone(record, "another process has its name"))
        elif not presence.live:
            due.append(gone(record, "it has left the physical topology"))
    return due
