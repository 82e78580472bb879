"""What the status of a node says of fencing: a line of it. Pure."""

from __future__ import annotations

from typing import Any

FIELDS = ("state", "serves", "why_not", "incarnation", "term", "lease_age_ms", "released", "applied")


def short_view(view: dict[str, Any] | None) -> dict[str, Any] | None:
    """Of shape `Fencing`: the node's own lease, and the changes that wait, where it leads (else null)."""
    if view is None or view["lease"] is None:
        return None
    lease, leader = view["lease"], view["leader"]
    return {**{name: lease[name] for name in FIELDS}, "waits": leader["waits"] if leader is not None else None}
