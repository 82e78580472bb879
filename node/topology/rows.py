"""Topology for people: a row per node, whether it is in the physical topology, in the logical one, or in both. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

HEADER = ["node", "physical", "logical", "role", "incarnation", "recovered", "swim", "http"]
NOTHING = "-"


def node_rows(topology: Mapping[str, Any]) -> list[list[str]]:
    """Of the shape of GET /v1/topology, in the order of the names."""
    physical = {each["id"]: each for each in topology["physical"]}
    logical = {each["id"]: each for each in topology["logical"]}
    return [node_row(name, physical.get(name), logical.get(name)) for name in sorted(physical | logical)]


OLD_S = 5.0
"""A follower has it anew each second at least, from a member."""


def copy_note(topology: Mapping[str, Any]) -> str | None:
    """What people should know of the logical part at a node that has it from a member."""
    age_s = topology.get("logical_age_s", 0.0)
    if age_s is None:
        return "no member of the group has told this node of the logical topology yet"
    if age_s > OLD_S:
        return f"the logical topology is as a member told it {age_s:.0f} s ago: none answers now"
    return None


def node_row(name: str, physical: Mapping[str, Any] | None, logical: Mapping[str, Any] | None) -> list[str]:
    """The incarnation is that of the logical topology, which counts joins."""
    tags = physical["tags"] if physical else {}
    addresses = logical["addresses"] if logical else {}
    return [
        name,
        physical["state"] if physical else NOTHING,
        logical["standing"] if logical else NOTHING,
        (logical["role"] if logical else tags.get("role")) or NOTHING,
        str(logical["incarnation"]) if logical else NOTHING,
        number(logical["recovered_revision"]) if logical else NOTHING,
        physical["address"] if physical else addresses.get("swim", NOTHING),
        addresses.get("http") or tags.get("http") or NOTHING,
    ]


def number(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"
