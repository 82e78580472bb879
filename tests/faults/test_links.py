"""Broken links with real processes in namespaces: no stale reads, strict writes continue in time, and each planted
fault is detected in the scenario that was built for it (issue 4, "Shown by" 2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.judge import CHECKS, judged
from tests.faults.links import FAULTS_SHOWN, SCENARIOS
from tests.faults.running import played, shown
from tests.sim.history_file import load

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


@pytest.mark.parametrize("fault", [each for each in FAULTS_SHOWN if each != "release_without_stage"])
async def test_planted_fault_shows(fault: str, tmp_path: Path) -> None:
    """By the results of readers, and by nothing else."""
    report = await played(FAULTS_SHOWN[fault].__name__, "--plant", fault, "--folder", str(tmp_path))
    assert any("had been returned" in each for each in report["violations"]), shown(report)


async def test_checkers_of_mixed_histories_see_a_planted_fault(tmp_path: Path) -> None:
    """Reads over HTTP from the vault of the isolated node; the readers detect it as well. The history is kept as a file
    that is judged in the same way."""
    report = await played("responses_lost", "--plant", "release_without_stage", "--folder", str(tmp_path))
    assert any(each.startswith("linearizable: ") for each in report["violations"]), shown(report)
    assert any(each.startswith("fenced reads: ") for each in report["violations"]), shown(report)
    by_readers = [each for each in report["violations"] if not each.startswith(tuple(f"{name}: " for name in CHECKS))]
    assert any("had been returned" in each for each in by_readers), shown(report)
    recorded = load(Path(report["history"]).read_text(encoding="ascii").splitlines())
    assert judged(recorded) == [each for each in report["violations"] if each not in by_readers]


async def test_relays_replace_namespaces_without_permission(tmp_path: Path) -> None:
    report = await played("responses_lost", "--network", "loopback", "--folder", str(tmp_path))
    assert report["failed"] is None, shown(report)
    assert report["violations"] == [], shown(report)
