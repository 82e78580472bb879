"""The status of nodes for people and programs: one row per node, as cells, a line, or JSON. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palisade.base.counted import revision_range
from palisade.recovery.report_json import progress_cell

Row = Mapping[str, Any]
VOTES = frozenset({"follower", "candidate", "leader"})
"""Roles of a member that is not a learner."""
RELEASE_LATE_MS = 1_000
"""From then on a revision counts as waiting for its release, also if no node delays it."""
NOTHING = "-"
COLUMNS = (
    ("node", "id"),
    ("role", "role"),
    ("term", "term"),
    ("LM", "revision"),
    ("MM", "minimal_revision"),
    ("commit", "commit_index"),
    ("applied", "applied_index"),
    ("ready", "ready"),
    ("topology", "topology"),
    ("inc", "incarnation"),
    ("fence", "fence"),
    ("lease", "lease"),
    ("RR", "released"),
    ("LV", "vault"),
    ("url", "url"),
)
IMPORTANCE = (
    "id", "role", "ready", "url", "revision", "fence", "vault", "topology", "released", "term", "lease",
    "minimal_revision", "applied_index", "commit_index", "incarnation",
)  # fmt: skip
"""The fields in the order in which a narrow terminal keeps them. `incarnation`: that in the topology; `lease`: the age
of the lease by which the node serves reads; `released`: RR; `vault`: LV."""
OF_FENCE = {"incarnation": "incarnation", "lease": "lease_age_ms", "vault": "applied"}
"""Fields that a row has in its object `fencing`."""
NUMBERS = {
    "released", "term", "revision", "minimal_revision", "commit_index", "applied_index", "incarnation", "lease",
    "vault",
}  # fmt: skip


def row_of(status: Mapping[str, Any], url: str | None) -> dict[str, Any]:
    """A row of the status of one node (`palisade/api/cluster_view.py`)."""
    raft, fencing = status.get("raft", {}), status.get("fencing") or {}
    return {
        "id": status.get("member"),
        "cluster": status.get("cluster"),
        "cluster_id": status.get("cluster_id"),
        "url": url,
        "role": status.get("role"),
        "term": status.get("term"),
        "leader": status.get("leader"),
        "generation": status.get("generation"),
        "ready": bool(status.get("ready")),
        "revision": status.get("revision"),
        "minimal_revision": status.get("minimal_revision"),
        "commit_index": raft.get("commit_index"),
        "applied_index": raft.get("applied_index"),
        "topology": (status.get("topology") or {}).get("phase"),
        "recovery": status.get("recovery"),
        "fence": fencing.get("state"),
        "released": fencing.get("released"),
        "fencing": status.get("fencing"),
        "refused_by": status.get("refused_by"),
    }


def clusters_of(rows: Sequence[Row]) -> list[str]:
    """A line per cluster that the rows belong to, with its name and id. A node knows no id until it has applied the
    first entry of the cluster's log."""
    found = {(row["cluster"], row["cluster_id"]) for row in rows if row["cluster"]}
    identified = {name for name, id_ in found if id_}
    found = {(name, id_) for name, id_ in found if id_ or name not in identified}
    nodes = {name: [str(row["id"]) for row in rows if row["cluster"] == name] for name, _ in found}
    lines = []
    for name, id_ in sorted(found, key=str):
        have = "has" if len(nodes[name]) == 1 else "have"
        unknown = f"; {', '.join(nodes[name])} {have} not received the cluster's ID yet"
        lines.append(f"cluster {name}{f', id {id_}' if id_ else unknown}")
    return lines


def silent_row(node: str | None, url: str | None) -> dict[str, Any]:
    """The row of a node that does not answer: all fields but its name and address are null."""
    return {**row_of({}, url), "id": node}


def titles() -> list[str]:
    return [title for title, _ in COLUMNS]


def cells(row: Row) -> list[str]:
    return [cell(row, field) for _, field in COLUMNS]


def plain_cells(row: Row) -> list[str]:
    """The cells for programs: numbers without separators, names without the mark of the leader."""
    found = dict(zip((field for _, field in COLUMNS), cells(row), strict=True))
    found |= {field: text.replace(",", "") for field, text in found.items() if field in NUMBERS}
    return list((found | {"id": str(row.get("id") or NOTHING)}).values())


def cell(row: Row, field: str) -> str:
    """A field as text; large numbers have separators of thousands."""
    value = (row.get("fencing") or {}).get(OF_FENCE[field]) if field in OF_FENCE else row.get(field)
    if field == "ready":
        return "yes" if value else "no"
    if value is None:
        return "silent" if field == "role" else NOTHING
    if field == "lease":
        return f"{value / 1000:.1f} s"
    if field == "topology" and row.get("recovery"):
        return f"{value} ({progress_cell(row['recovery'])})"
    if field == "id" and row.get("role") == "leader":
        return f"{value} *"
    return f"{value:,}" if field in NUMBERS else str(value)


def line_of(row: Row) -> str:
    """'n1 leader term 2 revision 5,532 ready', followed by 'recovering (replay 24 %)' if it is."""
    if row.get("role") is None:
        return f"{row.get('id')} silent"
    ready = "ready" if row.get("ready") else "not ready"
    recovery = progress_cell(row.get("recovery"))
    recovering = f", recovering ({recovery})" if recovery else ""
    return f"{row.get('id')} {row['role']} term {row.get('term')} revision {cell(row, 'revision')} {ready}{recovering}"


def changes_of(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """The values whose change is worth a new line: no revisions; of a recovery its phase and each tenth."""
    fields = ("id", "role", "term", "ready")
    return [(*(row.get(field) for field in fields), *tenth_of(row.get("recovery"))) for row in rows]


def tenth_of(progress: Mapping[str, Any] | None) -> tuple[Any, ...]:
    if progress is None:
        return ()
    return progress["phase"], 10 * progress["done"] // progress["total"] if progress["total"] else None


def waits_of(rows: Sequence[Row]) -> list[str]:
    """A line for each range of revisions that waits for its release, as the leader sees it."""
    lines = []
    for row in rows:
        for wait in (row.get("fencing") or {}).get("waits") or ():
            if is_wait(wait):
                lines.append(wait_line(wait))
    return lines


def is_wait(wait: Mapping[str, Any]) -> bool:
    """False for revisions that no node delays: in a cluster that is written to, the latest ones are released within
    milliseconds."""
    return bool(wait["waits_for"]) or bool(wait["waited_ms"] >= RELEASE_LATE_MS)


def wait_line(wait: Mapping[str, Any]) -> str:
    """`first` is 1 at a new leader, which does not know which revisions before its election were released."""
    first, last = wait["first"], wait["last"]
    revisions = revision_range(first, last) if first > 1 else f"revisions up to {last}"
    have = "has" if first == last > 1 else "have"
    reasons = "; ".join(each["reason"] for each in wait["waits_for"]) or "for no node any more"
    return f"{revisions} {have} waited {wait['waited_ms']} ms: {reasons}"


def leaderless_of(rows: Sequence[Row]) -> list[str]:
    """A line if members have answered and none of them leads or knows a leader."""
    members = [row["id"] for row in rows if row["role"] in VOTES]
    if not members or any(row["leader"] or row["role"] == "leader" for row in rows):
        return []
    silent = [str(row["id"]) for row in rows if row["role"] is None]
    if not silent:
        return ["no leader is known: an election may be in progress"]
    do = "does" if len(silent) == 1 else "do"
    return [f"no leader is known: {', '.join(silent)} {do} not answer; a leader needs a majority of the voters"]


def fenced_of(rows: Sequence[Row]) -> list[str]:
    """The nodes that are ready, as `/readyz` defines it, but serve no reads from their vaults yet: a line for those
    with the same reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        fencing = row.get("fencing")
        if row.get("ready") and fencing and not fencing.get("serves", True):
            revisions = f"LV {cell(row, 'vault')}, LM {cell(row, 'revision')}"
            alike.setdefault((f"fence {fencing['state']} ({fencing['why_not']})", revisions), []).append(row["id"])
    return [
        f"{', '.join(ids)} {'is ready, but serves' if len(ids) == 1 else 'are ready, but serve'} no reads from "
        f"{'its vault' if len(ids) == 1 else 'their vaults'}: {why}; {revisions}"
        for (why, revisions), ids in alike.items()
    ]


def refusals_of(rows: Sequence[Row]) -> list[str]:
    """The members that refuse the connections of another one: a line for those with the same reason."""
    alike: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for member, reason in (row.get("refused_by") or {}).items():
            alike.setdefault((row["id"], reason), []).append(member)
    return [
        f"{', '.join(members)} {'refuses' if len(members) == 1 else 'refuse'} {node}: {reason}"
        for (node, reason), members in alike.items()
    ]
