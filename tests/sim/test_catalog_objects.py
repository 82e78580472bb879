"""The checker of catalog objects knows the effect of every operation."""

from __future__ import annotations

from palisade.catalog.operations.all import KINDS
from tests.sim.checkers.catalog_objects import CHANGES, DROPPED_BY, MADE_BY


def test_every_operation_makes_or_drops_an_object_or_changes_one() -> None:
    """A missing one is not checked."""
    assert sorted([*MADE_BY, *DROPPED_BY, *CHANGES]) == sorted(KINDS)
