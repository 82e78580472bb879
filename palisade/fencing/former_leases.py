"""The name of the record that stands for the unknown holders of leases from before a break of history: a restore, or a
majority that was lost (`node/fencing/inherited_leases.py`). Such as "(before generation 2)". Pure."""

from __future__ import annotations

_BEGIN = "(before generation "
"""Nodes have no brackets in their names (`base.identifier.check_id`)."""


def former_name(generation: int) -> str:
    return f"{_BEGIN}{generation})"


def is_former(holder: str) -> bool:
    return holder.startswith(_BEGIN)


def former_leases(holder: str) -> str:
    """The leases of this record, for display."""
    return f"leases from {holder[1:-1]}"
