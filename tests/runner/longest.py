"""Files of tests with processes that begin first, so that none of them runs alone at the end of a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
TESTS = Path(__file__).resolve().parents[1]
LONGEST = (
    "pipeline/test_spark_cluster.py", "e2e/test_scenarios.py", "faults/test_planted_links.py", "e2e/test_up.py",
    "e2e/test_documents.py", "e2e/test_segment_moves.py",
)  # fmt: skip
"""The first one begins the chain of `scheduling.py`: all tests of its folder, one after the other."""
_PLACES = {TESTS / each: place for place, each in enumerate(LONGEST)}


def longest_first(items: list[T], path_of: Callable[[T], Path]) -> None:
    """All others keep their order."""
    items.sort(key=lambda item: _PLACES.get(path_of(item), len(LONGEST)))
