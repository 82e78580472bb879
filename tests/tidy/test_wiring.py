"""Wiring is linear: an object gets all that it needs in its constructor (issue 15).

An attribute that is assigned from outside later, in the wrong order or not at all, is a mistake that nothing reports.
Attributes of records that another object changes are state, not wiring, and not meant here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.rooms import ROOT, Trees, parse_all, statements

PATCHES_OF_PYSYNCOBJ = "palisade.raftgroup.library"
CONNECTION_STATES = "palisade.node.fencing.lease_server"
OWN = ("self", "cls")


def assigned_outside(tree: ast.Module) -> Iterator[tuple[int, ast.Attribute, ast.expr | None]]:
    """Line, target and value of each assignment to an attribute of another object than the method's own."""
    for node in statements(tree):
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            targets, value = [node.target], node.value
        else:
            continue
        for target, part in pairs(targets, value):
            if isinstance(target, ast.Attribute) and not is_own(target.value):
                yield node.lineno, target, part


def pairs(targets: list[ast.expr], value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """`a.x, b.y = c, d` assigns two attributes."""
    for target in targets:
        if not isinstance(target, ast.Tuple):
            yield target, value
            continue
        is_each = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        given = value.elts if is_each and isinstance(value, ast.Tuple) else [value] * len(target.elts)
        yield from zip(target.elts, given, strict=True)


def is_own(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in OWN


def handed_over(trees: Trees) -> list[str]:
    """An object assigns itself, or a method or part of itself, to an attribute of another one."""
    return [
        f"{name}:{line} {ast.unparse(target)} = {ast.unparse(value)}"
        for name, tree in trees.items()
        if name != PATCHES_OF_PYSYNCOBJ
        for line, target, value in assigned_outside(tree)
        if value is not None and (is_own(value) or (isinstance(value, ast.Attribute) and is_own(value.value)))
    ]


def set_in_wiring(trees: Trees) -> list[str]:
    """A module of the room `node`, which builds the objects of a process, assigns an attribute of one."""
    return [
        f"{name}:{line} {ast.unparse(target)}"
        for name, tree in trees.items()
        if name.startswith("palisade.node.") and name != CONNECTION_STATES
        for line, target, _ in assigned_outside(tree)
    ]


@pytest.fixture(scope="module")
def trees() -> Trees:
    return parse_all(ROOT)


def test_no_object_hands_itself_to_another_by_assignment(trees: Trees) -> None:
    assert handed_over(trees) == []


def test_wiring_assigns_no_attribute_after_construction(trees: Trees) -> None:
    assert set_in_wiring(trees) == []


def test_assignments_that_broke_these_rules_are_found() -> None:
    """As they stood in `segments/announcer.py`, `segments/retention_worker.py` and `node/segments_wiring.py`."""
    planted = {
        "palisade.segments.announcer": "def __init__(self, holder):\n    holder.announcements = self\n",
        "palisade.segments.retention_worker": "def __init__(self, holder):\n    holder.is_expired = self.is_expired\n",
        "palisade.node.segments_wiring": "announcer.growing, realtime.writes = realtime.growing, announcer\n",
    }
    found = {name: ast.parse(text) for name, text in planted.items()}
    assert handed_over(found) == [
        "palisade.segments.announcer:2 holder.announcements = self",
        "palisade.segments.retention_worker:2 holder.is_expired = self.is_expired",
    ]
    assert set_in_wiring(found) == [
        "palisade.node.segments_wiring:1 announcer.growing",
        "palisade.node.segments_wiring:1 realtime.writes",
    ]
