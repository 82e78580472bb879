"""Partitions between the copies of a journal and the metadata store, with real processes (issue 17, "Activation")."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.running import played, shown

pytestmark = pytest.mark.e2e


async def test_no_acknowledged_entry_is_lost_and_no_two_copies_are_active_in_any_partition(tmp_path: Path) -> None:
    report = await played("journal_partitions", "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
    assert report["acknowledged"] > 80, shown(report)
    assert report["reads"] > 80, shown(report)


async def test_copy_that_answers_after_its_lease_is_detected(tmp_path: Path) -> None:
    """It keeps to every other rule: without its replica it acknowledges nothing. But its reads are stale."""
    report = await played("journal_partitions", "--plant", "journal_past_its_lease", "--folder", str(tmp_path))
    assert any("after another copy was active" in each for each in report["violations"]), shown(report)
    assert any("was acknowledged" in each for each in report["violations"]), shown(report)
