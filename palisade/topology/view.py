"""Topology as plain values for status, the API and metrics, from the system records and SWIM's records. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from palisade.metastore.system_records import SystemRecords
from palisade.topology.records import NODE_PREFIX, RULES_NAME, ClusterRules, NodeRecord, NodeStanding
from palisade.topology.swim.record import Record, SwimState


def rules_of(records: SystemRecords) -> ClusterRules | None:
    """None until the cluster is initialized."""
    found = records.get(RULES_NAME)
    return ClusterRules.from_bytes(found.value) if found.version else None


def node_of(records: SystemRecords, name: str) -> NodeRecord | None:
    found = records.get(NODE_PREFIX + name)
    return NodeRecord.from_bytes(found.value) if found.version else None


def nodes_of(records: SystemRecords) -> list[NodeRecord]:
    """Sorted by name; includes nodes that are gone."""
    return [NodeRecord.from_bytes(found.value) for found in records.with_prefix(NODE_PREFIX)]


def present(nodes: Iterable[NodeRecord]) -> list[NodeRecord]:
    """Validated and active nodes, without those that are gone."""
    return [each for each in nodes if each.standing is not NodeStanding.GONE]


def logical_view(records: SystemRecords) -> list[dict[str, Any]]:
    return [logical_row(each) for each in present(nodes_of(records))]


def logical_row(record: NodeRecord) -> dict[str, Any]:
    return {
        "id": record.name,
        "role": record.role.value,
        "standing": record.standing.value,
        "incarnation": record.incarnation,
        "instance": record.instance,
        "addresses": dict(sorted(record.addresses.items())),
        "recovered_revision": record.recovered if record.standing is NodeStanding.ACTIVE else None,
    }


def physical_view(records: Iterable[Record]) -> list[dict[str, Any]]:
    return [
        {
            "id": record.name,
            "state": record.state.name.lower(),
            "address": record.address,
            "instance": record.instance,
            "incarnation": record.incarnation,
            "tags": dict(record.tags),
        }
        for record in sorted(records, key=lambda each: each.name)
    ]


def states_of(records: Iterable[Record]) -> dict[str, int]:
    """Number of nodes by state in the physical topology."""
    counts = {state.name.lower(): 0 for state in SwimState}
    for record in records:
        counts[record.state.name.lower()] += 1
    return counts


def standings_of(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    """Number of nodes by standing, VALIDATED or ACTIVE."""
    counts = {standing.value: 0 for standing in (NodeStanding.VALIDATED, NodeStanding.ACTIVE)}
    for row in rows:
        counts[row["standing"]] += 1
    return counts
