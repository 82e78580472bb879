"""Which partitions a node keeps, as plain values for the API and for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from node.partitions.holder import PartitionHolder
from node.partitions.names import Wanted, table_and_day

HEADER = ["node", "assigned", "local", "missing", "bytes", "why"]
UNKNOWN = "?"


def partitions_view(node: str, holder: PartitionHolder | None, limit: int) -> dict[str, Any]:
    """Shape `Partitions` of the API, what is missing first. `holder` None: the node keeps none."""
    if holder is None:
        counts = dict.fromkeys(("assigned", "local", "missing", "extra", "bytes", "fetched", "evicted"), 0)
        return {"node": node, "keeps": False, "revision": 0, **counts, "partitions": []}
    rows = sorted(_rows(holder), key=lambda row: (row["state"] == "local", row["table"], row["day"]))
    states = [row["state"] for row in rows]
    return {
        "node": node,
        "keeps": True,
        "revision": holder.revision,
        "assigned": len(holder.wanted),
        **{state: states.count(state) for state in ("local", "missing", "extra")},
        "bytes": sum(held.size_bytes for held in holder.shelf.held.values()),
        "fetched": holder.tally.fetched,
        "evicted": holder.tally.evicted,
        "partitions": list(islice(rows, limit)),
    }


def _rows(holder: PartitionHolder) -> list[dict[str, Any]]:
    names = holder.wanted.keys() | holder.shelf.held.keys()
    return [_row(name, holder.wanted.get(name), holder) for name in names]


def _row(name: str, wanted: Wanted | None, holder: PartitionHolder) -> dict[str, Any]:
    """'extra': it is here, and not assigned here; it is on its way out."""
    here = wanted is not None and holder.shelf.has(name, wanted.digest)
    known = wanted or holder.shelf.held[name]
    table, day = table_and_day(name)
    return {
        "table": table,
        "day": day,
        "state": "extra" if wanted is None else "local" if here else "missing",
        "digest": known.digest,
        "size_bytes": known.size_bytes,
        "error": holder.tally.trouble.get(name),
    }


def node_summary(node: str, assigned: int, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """A node in `palisade partitions list`: what the meta storage assigns to it, and what it says that it has.

    `found` is its answer to GET /v1/partitions; None where it did not answer.
    """
    if found is None:
        return {"node": node, "assigned": assigned, "local": None, "missing": None, "bytes": None, "error": "no answer"}
    errors = [row["error"] for row in found["partitions"] if row["error"]]
    why = "keeps none: it runs without --partitions" if not found["keeps"] and assigned else None
    return {
        "node": node,
        "assigned": assigned,
        "local": found["local"],
        "missing": max(0, assigned - found["local"]),
        "bytes": found["bytes"],
        "error": errors[0] if errors else why,
    }


def summary_row(summary: Mapping[str, Any]) -> list[str]:
    values = [summary[name] for name in ("assigned", "local", "missing", "bytes")]
    return [
        summary["node"],
        *(UNKNOWN if value is None else f"{value:,}" for value in values),
        summary["error"] or "",
    ]
