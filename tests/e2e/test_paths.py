"""Files and functions that one request enters on a real cluster (`scripts/paths`; limits: `tests/paths/limits.py`)."""

from __future__ import annotations

import asyncio

import pytest

from tests.paths.journeys import JOURNEYS, Journey
from tests.paths.limits import DIFFERENT_FILES, LIMITS, Limit, is_of_authorization
from tests.paths.measure import NodePath, Paths, different_files, measured_each

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

FUNCTIONS_MIN = 5
"""A trace with fewer files is no valid trace."""


MEASUREMENTS = 3
"""At most, as long as a path is too long. Other work of the machine adds functions to a path, and removes none, so the
shortest one counts. In about one measurement of fifteen, a strict put sees its release before the answer."""


@pytest.fixture(scope="module")
def paths() -> dict[bool, Paths]:
    found = asyncio.run(measured_each())
    for _ in range(MEASUREMENTS - 1):
        if any(_is_longer(found[setting], limit, setting) for limit in LIMITS for setting in found):
            again = asyncio.run(measured_each())
            found = {setting: _shorter(found[setting], again[setting]) for setting in found}
    return found


def _is_longer(paths: Paths, limit: Limit, authorization: bool) -> bool:
    path, most = paths[limit.journey, limit.role].main, limit.on if authorization else limit.off
    return len(path.own_files) > most.files or (most.functions is not None and len(path.own) > most.functions)


def _shorter(first: Paths, second: Paths) -> Paths:
    return {key: min(first[key], second[key], key=_length) for key in first}


def _length(path: NodePath) -> tuple[int, int]:
    return len(path.main.own_files), len(path.main.own)


@pytest.mark.parametrize("authorization", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("limit", LIMITS, ids=lambda limit: f"{limit.journey}-{limit.role}")
def test_request_enters_no_more_files_and_functions_than_its_limit(
    paths: dict[bool, Paths], limit: Limit, authorization: bool
) -> None:
    path = paths[authorization][limit.journey, limit.role].main
    assert len(path.own) >= FUNCTIONS_MIN
    assert not _is_longer(paths[authorization], limit, authorization), (
        f"{len(path.own_files)} files, {len(path.own)} functions; scripts/paths --list {limit.journey} names them: "
        f"{sorted(path.own_files)}"
    )


@pytest.mark.parametrize("journey", JOURNEYS, ids=lambda journey: journey.name)
def test_authorization_changes_the_path_by_no_more_files_than_allowed(
    paths: dict[bool, Paths], journey: Journey
) -> None:
    off, on = (paths[setting][journey.name, journey.roles[0]] for setting in (False, True))
    found = {file for file in different_files(off, on) if not is_of_authorization(file)}
    assert len(found) <= DIFFERENT_FILES[journey.name], sorted(found)
    assert any(map(is_of_authorization, on.main.own_files)), "authorization was not on"
