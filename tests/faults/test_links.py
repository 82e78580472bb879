"""Broken links with real processes in namespaces: no stale reads, and strict writes continue in time (issue 4, "Shown
by" 2). `test_planted_links.py` shows that each scenario detects the fault that it was built for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.links import SCENARIOS
from tests.faults.running import played, shown

pytestmark = [pytest.mark.e2e, pytest.mark.alone]
WITHOUT_MIXED = ("late", "log_late")
"""Scenarios with readers only."""


@pytest.mark.parametrize("scenario", [each.__name__ for each in SCENARIOS])
async def test_reads_are_never_stale_under_link_faults(scenario: str, tmp_path: Path) -> None:
    report = await played(scenario, "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
    assert report["reads"] > 200, shown(report)  # how many depends on the machine
    assert scenario in WITHOUT_MIXED or report["watched"] > 50, shown(report)


async def test_relays_replace_namespaces_without_permission(tmp_path: Path) -> None:
    report = await played("responses_lost", "--network", "loopback", "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
