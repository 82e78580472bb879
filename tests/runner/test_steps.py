"""Steps in two lanes: their order, their exit codes and what they took."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.runner.__main__ import ROOT, WITH_PROCESSES
from tests.runner.steps import Run, Step


def python(name: str, program: str, after: str | None = None) -> Step:
    return Step(name, (sys.executable, "-c", program), after)


def test_every_step_runs_though_one_fails_and_the_whole_has_failed(capfd: pytest.CaptureFixture[str]) -> None:
    run = Run()
    assert run.go((python("bad", "raise SystemExit(3)"), python("good", "")), (python("other", "print('shown')"),)) == 1
    assert {each.name: each.code for each in run.ended} == {"bad": 3, "good": 0, "other": 0}
    shown = capfd.readouterr().out
    assert "shown" in shown
    assert "FAILED (3)" in shown


def test_a_step_waits_for_the_one_of_the_other_lane_that_it_names(tmp_path: Path) -> None:
    file = tmp_path / "first"
    first = python("first", f"open({str(file)!r}, 'w').close()")
    second = python("second", f"import os; raise SystemExit(not os.path.exists({str(file)!r}))", after="first")
    assert Run().go((first,), (second,)) == 0


def test_the_second_lane_gives_way_and_the_time_of_processors_is_counted() -> None:
    run = Run()
    idle = "import os; raise SystemExit(os.sched_getscheduler(0) != os.SCHED_IDLE and os.nice(0) < 19)"
    busy = "import time\nwhile time.process_time() < 0.2: pass"
    assert run.go((python("busy", busy),), (python("idle", idle),)) == 0
    assert next(each.cpu_s for each in run.ended if each.name == "busy") >= 0.2


def test_tests_with_processes_lie_where_they_are_looked_for() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.e2e" in path.read_text("utf-8")]
    outside = [path for path in marked if not path.is_relative_to(ROOT / "tests/runner")]
    assert [path for path in outside if not any(path.is_relative_to(ROOT / each) for each in WITH_PROCESSES)] == []
