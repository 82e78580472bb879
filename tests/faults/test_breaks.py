"""Processes that are killed, paused and restarted, full disks, flipped bits, and all of it at once, for a little while;
`scripts/faults` goes on for longer (issue 5, `tests/faults`)."""

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
async def test_nothing_is_lost_and_nobody_is_told_anything_old(
    scenario: str, options: tuple[str, ...], tmp_path: Path
) -> None:
    report = await played(scenario, *options, "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
    assert report["acknowledged"] > 100, shown(report)
