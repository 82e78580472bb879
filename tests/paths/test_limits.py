"""The limits of paths name journeys and files that exist, and their table shows each of them."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.paths.journeys import JOURNEYS
from tests.paths.limits import AUTHORIZATION, DIFFERENT_FILES, LIMITS, Limit, Most, table
from tests.paths.traced_node import product_path

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("pattern", AUTHORIZATION)
def test_pattern_of_authorization_matches_a_file_of_the_product(pattern: str) -> None:
    rooms = [each.resolve() for each in (ROOT / "palisade").iterdir() if each.is_dir()]
    files = [product_path(str(file)) for room in rooms for file in room.rglob("*.py")]
    assert any(fnmatch(file, pattern) for file in files if file)


def test_limits_name_every_journey() -> None:
    roles = {each.name: each.roles for each in JOURNEYS}
    assert set(DIFFERENT_FILES) == set(roles)
    assert all(limit.role in roles[limit.journey] for limit in LIMITS)
    assert {limit.journey for limit in LIMITS} == set(roles)


@pytest.mark.parametrize("limit", [each for each in LIMITS if each.goal], ids=lambda limit: str(limit.journey))
def test_limits_enforce_the_goal_with_authorization_off_and_on(limit: Limit) -> None:
    """Issue 15: "counted by a test that traces them (with authorization on and off: the same way)"."""
    goal = limit.goal
    assert goal is not None
    for most in (limit.off, limit.on):
        assert most.files <= goal.files
        assert goal.functions is None or (most.functions is not None and most.functions <= goal.functions)


def test_table_shows_limits_and_goal_of_each_journey() -> None:
    found = table([Limit("a-put", "leader", Most(41, 124), Most(57), Most(24, 100))])
    assert found[1].split() == ["a-put", "at", "the", "leader", "41", "124", "57", "24", "100"]
