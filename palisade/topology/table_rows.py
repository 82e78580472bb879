"""The topology as a table: one row per node of the physical or the logical topology. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEADER = ["node", "physical", "logical", "role", "incarnation", "recovered", "swim", "http"]
NOTHING = "-"


def node_rows(topology: Mapping[str, Any], separators: bool = True) -> list[list[str]]:
    """`topology`: the response of GET /v1/topology. Sorted by name. `separators`: of thousands, for people."""
    physical = {each["id"]: each for each in topology["physical"]}
    logical = {each["id"]: each for each in topology["logical"]}
    return [node_row(name, physical.get(name), logical.get(name), separators) for name in sorted(physical | logical)]


OLD_S = 5.0
"""Age above which a follower's copy counts as stale. A follower refreshes it about once a second."""


def copy_note(topology: Mapping[str, Any]) -> str | None:
    """A warning about the age of a follower's copy; None if there is nothing to warn about."""
    age_s = topology.get("logical_age_s", 0.0)
    if age_s is None:
        return "the logical topology is not known yet: no member has answered"
    if age_s > OLD_S:
        return f"the logical topology is {age_s:.0f} s old: no member answers"
    return None


def node_row(
    name: str, physical: Mapping[str, Any] | None, logical: Mapping[str, Any] | None, separators: bool
) -> list[str]:
    """The incarnation is that of the logical topology, which counts joins, not that of SWIM."""
    tags = physical["tags"] if physical else {}
    addresses = logical["addresses"] if logical else {}
    return [
        name,
        physical["state"] if physical else NOTHING,
        logical["standing"] if logical else NOTHING,
        (logical["role"] if logical else tags.get("role")) or NOTHING,
        str(logical["incarnation"]) if logical else NOTHING,
        number(logical["recovered_revision"], separators) if logical else NOTHING,
        physical["address"] if physical else addresses.get("swim", NOTHING),
        addresses.get("http") or tags.get("http") or NOTHING,
    ]


def number(value: int | None, separators: bool) -> str:
    return NOTHING if value is None else f"{value:,}" if separators else str(value)
