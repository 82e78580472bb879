"""Files and functions that one request enters on a real cluster (`scripts/paths`; limits: `tests/paths/limits.py`)."""

from __future__ import annotations

import asyncio

import pytest

from tests.paths.journeys import JOURNEYS, Journey
from tests.paths.limits import DIFFERENT_FILES, LIMITS, Limit, is_of_authorization
from tests.paths.measure import Paths, different_files, measured_each

pytestmark = pytest.mark.e2e

FUNCTIONS_MIN = 5
"""A trace with fewer files is no valid trace."""


@pytest.fixture(scope="module")
def paths() -> dict[bool, Paths]:
    return asyncio.run(measured_each())


@pytest.mark.parametrize("authorization", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.journey}-{limit.role}")
def test_request_enters_no_more_files_and_functions_than_its_limit(
    paths: dict[bool, Paths], limit: Limit, authorization: bool
) -> None:
    path = paths[authorization][limit.journey, limit.role].main
    most = limit.on if authorization else limit.off
    files, functions = len(path.own_files), len(path.own)
    assert functions >= FUNCTIONS_MIN
    assert files <= most.files, f"scripts/paths --list {limit.journey} names them: {sorted(path.own_files)}"
    assert most.functions is None or functions <= most.functions, f"scripts/paths --list {limit.journey} names them"


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.name)
def test_authorization_changes_the_path_by_no_more_files_than_allowed(
    paths: dict[bool, Paths], journey: Journey
) -> None:
    off, on = (paths[setting][journey.name, journey.roles[0]].main for setting in (False, True))
    found = {file for file in different_files(off, on) if not is_of_authorization(file)}
    assert len(found) <= DIFFERENT_FILES[journey.name], sorted(found)
    assert any(map(is_of_authorization, on.own_files)), "authorization was not on"
