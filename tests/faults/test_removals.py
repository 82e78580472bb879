"""A removed member and clients that read its vault: no stale read, no range of two revisions (issue 16); and the faults
that these checkers are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.running import played, shown

pytestmark = pytest.mark.e2e


@pytest.mark.alone
async def test_removed_member_serves_nothing_stale_and_no_range_of_two_revisions(tmp_path: Path) -> None:
    report = await played("removed_member", "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
    assert report["ranges"] > 20, shown(report)


@pytest.mark.parametrize(
    ("plant", "checker"), [("long_leases", "fenced reads: "), ("ranges_of_two_revisions", "snapshots: ")]
)
async def test_planted_fault_at_a_removed_member_shows(plant: str, checker: str, tmp_path: Path) -> None:
    report = await played("removed_member", "--plant", plant, "--folder", str(tmp_path))
    assert any(each.startswith(checker) for each in report["violations"]), shown(report)
