"""The part of a node's status that is about fencing. Pure."""

from __future__ import annotations

from typing import Any

FIELDS = ("state", "serves", "why_not", "incarnation", "term", "lease_age_ms", "released", "applied")


def short_view(view: dict[str, Any] | None) -> dict[str, Any] | None:
    """Of shape `Fencing`: the node's own lease, and on the leader the pending changes (else null)."""
    if view is None or view["lease"] is None:
        return None
    lease, leader = view["lease"], view["leader"]
    return {**{name: lease[name] for name in FIELDS}, "waits": leader["waits"] if leader is not None else None}
