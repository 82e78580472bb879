"""The HTTP addresses of the nodes, from the topology that a node returns. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def addresses_in(topology: Mapping[str, Any]) -> dict[str, str]:
    """HTTP address by name of the nodes in the logical topology."""
    rows: Iterable[Mapping[str, Any]] = topology["logical"]
    return {row["id"]: row["addresses"]["http"] for row in rows if row["addresses"].get("http")}
