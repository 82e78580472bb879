"""Killed, paused and restarted processes, full disks, flipped bits, and all of it at once, for a short time;
`scripts/faults` runs longer (issue 5, `tests/faults`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.running import played, shown

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("anything", ("--seconds=10", "--seed=1")),
        ("rolling_restarts", ("--times=4",)),
        ("disk_full", ()),
        ("damage", ("--times=3",)),
    ],
)
async def test_mixed_faults_lose_nothing_and_serve_nothing_stale(
    scenario: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    report = await played(scenario, *options, "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
    assert report["acknowledged"] > 100, shown(report)
    assert report["watched"] > 50, shown(report)
    assert scenario != "damage" or report["noticed"] > 0, shown(report)


async def test_members_that_fall_silent_are_named_and_so_are_watches(tmp_path: Path) -> None:
    """n1 reports everything: neither it nor its clients hide the others."""
    report = await played("rolling_restarts", "--times=1", "--plant=silent_watches", "--folder", str(tmp_path))
    members = [each.split()[0] for each in report["violations"] if "has reported nothing after" in each]
    assert members == ["n2", "n3"], shown(report)
    assert any(", received nothing after revision " in each for each in report["violations"]), shown(report)
