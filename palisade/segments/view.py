"""The segments of a node as JSON, for the API and the command line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from palisade.base.counted import agreeing, counted
from palisade.segments.holder import SegmentHolder
from palisade.segments.holder_ports import NO_RETENTION
from palisade.segments.names import Wanted

HEADER = ["node", "assigned", "local", "missing", "expired", "trashed", "bytes", "why"]
STATES = ("missing", "extra", "expired", "trashed", "local")
"""In the order of listing."""
COUNTS = ("assigned", *STATES, "bytes", "trash_bytes", "fetched", "evicted", "trashings", "purged", "restored")
NOT_ANNOUNCED = {"announced": 0, "announcing_error": None}
UNKNOWN = "?"
SUMMED = ("local", "missing", "expired", "trashed", "bytes")


def copies_view(node: str, holder: SegmentHolder | None, limit: int) -> dict[str, Any]:
    """Shape `SegmentCopies` of the API, missing ones first. `holder`: None if the node stores no segments."""
    if holder is None:
        counts = dict.fromkeys(COUNTS, 0)
        return {
            "node": node,
            "keeps": False,
            "revision": 0,
            **counts,
            "retention": NO_RETENTION,
            **NOT_ANNOUNCED,
            "segments": [],
        }
    rows = sorted(_rows(holder), key=lambda row: (STATES.index(row["state"]), row["segment"]))
    tally = holder.tally
    return {
        "node": node,
        "keeps": True,
        "revision": holder.revision,
        "assigned": len(holder.wanted),
        **counts_of(holder),
        "bytes": bytes_of(holder.segment_store.held),
        "trash_bytes": bytes_of(holder.segment_store.trashed),
        "fetched": tally.fetched,
        "evicted": tally.evicted,
        "trashings": tally.trashed,
        "purged": tally.purged,
        "restored": tally.restored,
        "retention": holder.retention.view(),
        "announced": holder.announcements.state()[0],
        "announcing_error": holder.announcements.state()[1],
        "segments": list(islice(rows, limit)),
    }


def counts_of(holder: SegmentHolder) -> dict[str, int]:
    """Number of segments of this node by state."""
    states = [state_of(name, holder) for name in _names(holder)]
    return {state: states.count(state) for state in STATES}


def bytes_of(copies: Mapping[str, Wanted]) -> int:
    return sum(each.size_bytes for each in copies.values())


def _names(holder: SegmentHolder) -> set[str]:
    return holder.wanted.keys() | holder.segment_store.held.keys() | holder.segment_store.trashed.keys()


def state_of(name: str, holder: SegmentHolder) -> str:
    """'extra': local but not assigned, to be removed. 'expired': past its TTL, and not local."""
    wanted = holder.wanted.get(name)
    if wanted is None:
        return "extra"
    if holder.segment_store.has(name, wanted.digest):
        return "local"
    if name in holder.segment_store.trashed:
        return "trashed"
    return "expired" if holder.is_expired(name) else "missing"


def _rows(holder: SegmentHolder) -> list[dict[str, Any]]:
    return [_row(name, holder) for name in _names(holder)]


def _row(name: str, holder: SegmentHolder) -> dict[str, Any]:
    segment_store = holder.segment_store
    known = holder.wanted.get(name) or segment_store.held.get(name) or segment_store.trashed[name]
    return {
        "segment": name,
        "state": state_of(name, holder),
        "digest": known.digest,
        "size_bytes": known.size_bytes,
        "error": holder.tally.trouble.get(name),
    }


def node_summary(node: str, assigned: int, found: Mapping[str, Any] | None) -> dict[str, Any]:
    """A node in `palisade segments nodes`: its assignments in the metadata store, and its own report.

    `found`: the node's response to GET /v1/segments/copies; None if it did not answer.
    """
    if found is None:
        return {"node": node, "assigned": assigned, **dict.fromkeys(SUMMED), "error": "no answer"}
    errors = [row["error"] for row in found["segments"] if row["error"]]
    why = "stores no segments: started without --segments" if not found["keeps"] and assigned else None
    expired, trashed = found.get("expired", 0), found.get("trashed", 0)
    return {
        "node": node,
        "assigned": assigned,
        "local": found["local"],
        "missing": max(0, assigned - found["local"] - expired - trashed),
        "expired": expired,
        "trashed": trashed,
        "bytes": found["bytes"],
        "error": errors[0] if errors else why,
    }


def summary_row(summary: Mapping[str, Any], *, separators: bool = True) -> list[str]:
    """Copies that are missing without an error are being fetched. `separators`: of thousands."""
    values = [summary[name] for name in ("assigned", *SUMMED)]
    missing = summary["missing"]
    loading = f"loading: {counted(missing, 'copy')} {agreeing(missing, 'is', 'are')} missing" if missing else ""
    return [
        summary["node"],
        *(UNKNOWN if value is None else f"{value:,}" if separators else str(value) for value in values),
        summary["error"] or loading,
    ]
