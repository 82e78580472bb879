"""The state of a node and its group as plain values: the results of `status` and `members` on every API.

Pure: reads the service, waits for nothing. Shapes: docs/http-api.md.
"""

from __future__ import annotations

from typing import Any

from palisade.api.fencing_status_line import short_view
from palisade.api.services import NodeServices
from palisade.base.version import VERSION
from palisade.raftgroup.founding import refusal_text
from palisade.raftgroup.role import RaftRole
from palisade.raftgroup.status import GroupStatus, MemberStatus
from palisade.recovery.report_json import progress_view
from palisade.service.key_values import KeyValues


def status_view(services: NodeServices, cluster: str) -> dict[str, Any]:
    """This node, its group, and its copy of the store. Sizes in bytes, times in milliseconds."""
    service = services.key_values
    status, store = service.group.status(), service.store
    return {
        "cluster": cluster,
        "cluster_id": store.lineage.cluster_id,
        "generation": store.lineage.generation,
        "member": status.member,
        "version": VERSION,
        "role": status.role.value,
        "leader": status.leader,
        "term": status.term,
        "ready": not not_ready(services),
        "authorization": "off" if services.authorizer is None else "on",
        "revision": store.revision,
        "minimal_revision": store.minimal_revision,
        "keys": store.key_count,
        "size_bytes": store.size_bytes,
        "quota_bytes": store.limits.quota_bytes,
        "leases": len(store.leases()),
        "watchers": service.metrics.watchers,
        "alarms": alarms_view(service),
        "raft": {
            "commit_index": status.commit_index,
            "applied_index": status.applied_index,
            "first_index": status.first_index,
            "last_index": status.last_index,
            "synced_index": status.synced_index,
            "quorum_lease_ms": status.lease_remaining_ms,
        },
        "members": members_view(service),
        "refused_by": refusals_of(status),
        "topology": services.topology.own_view() if services.topology is not None else None,
        "recovery": progress_view(services.vault),
        "fencing": short_view(services.fencing_view() if services.fencing_view is not None else None),
    }


def listed_members(service: KeyValues) -> list[dict[str, Any]]:
    """Raises NodeFailed: a member that was removed no longer knows the members."""
    service.group.check_alive()
    return members_view(service)


def members_view(service: KeyValues) -> list[dict[str, Any]]:
    status = service.group.status()
    return [member_view(each, status.leader) for each in status.members]


def refusals_of(status: GroupStatus) -> dict[str, str]:
    return {member: refusal_text(reason) for member, reason in sorted(status.refusals.items())}


def member_view(each: MemberStatus, leader: str | None) -> dict[str, Any]:
    """`connected`: whether it has a connection to this node and answers. `match_index`: the last entry that the leader
    knows to be on the member; null if unknown, or on another node than the leader."""
    return {
        "id": each.member.id,
        "role": each.member.role.value,
        "leader": each.member.id == leader,
        "incarnation": each.member.incarnation,
        "addresses": dict(sorted(each.member.addresses.items())),
        "connected": each.connected,
        "match_index": each.match_index,
        "installing_snapshot": each.installing_snapshot,
    }


def alarms_view(service: KeyValues) -> list[dict[str, Any]]:
    store = service.store
    if not store.alarm:
        return []
    text = (
        f"the store holds {store.size_bytes} bytes, its quota is {store.limits.quota_bytes}: only reads, deletes, "
        "lease revokes and compaction are accepted. Delete keys, compact, then clear the alarm"
    )
    return [{"alarm": "quota", "text": text}]


CAUGHT_UP_ENTRIES = 1_000


def not_ready(services: NodeServices) -> list[str]:
    """Why this node should not get requests now; empty if it should."""
    first_user = services.first_user
    return group_not_ready(services.key_values) + (first_user.not_ready() if first_user is not None else [])


def group_not_ready(service: KeyValues) -> list[str]:
    """Why the group cannot serve through this node now. A refusal by one member alone is no reason: that member may be
    of another generation and restarted by mistake."""
    status = service.group.status()
    reasons = []
    if status.role is RaftRole.REMOVED:
        reasons.append(f"{status.member} was removed from the group")
    elif status.member not in {each.member.id for each in status.members}:
        reasons.append(f"{status.member} is not a member of the group yet")
    if status.missing_founders:
        reasons.append(f"waiting for the founding members {', '.join(status.missing_founders)}")
    if status.leader is None:
        reasons += [f"{member} refuses this node: {reason}" for member, reason in refusals_of(status).items()]
        reasons.append(status.no_leader)
    if status.commit_index - status.applied_index > CAUGHT_UP_ENTRIES:
        reasons.append(f"catching up: entry {status.applied_index} of {status.commit_index} is applied")
    elif not service.store.lineage.cluster_id:
        reasons.append("the cluster has no id yet: its first leader chooses one soon")
    return reasons
