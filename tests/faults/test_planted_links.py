"""Broken links and a planted fault: the scenario that was built for the fault detects it, by results alone. Nothing is
measured here, so these run beside others."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.judge import CHECKS, judged
from tests.faults.links import FAULTS_SHOWN
from tests.faults.running import played, shown
from tests.sim.history_file import load

pytestmark = pytest.mark.e2e
RUNS = 3


@pytest.mark.parametrize("fault", [each for each in FAULTS_SHOWN if each != "release_without_stage"])
async def test_planted_fault_shows(fault: str, tmp_path: Path) -> None:
    """By the results of readers, and by nothing else. In real time, a reader may miss the moment: up to `RUNS` runs."""
    for run in range(RUNS):
        (folder := tmp_path / str(run)).mkdir()
        report = await played(FAULTS_SHOWN[fault].__name__, "--plant", fault, "--folder", str(folder))
        if any("had been returned" in each for each in report["violations"]):
            return
    pytest.fail(shown(report))


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
