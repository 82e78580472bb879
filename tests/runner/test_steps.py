"""Steps in two lanes: their order, their exit codes and what they took."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.__main__ import CHAIN, ROOT, SIMULATED, TIMED, WITH_PROCESSES, WITH_THREADS
from tests.runner.longest import LONGEST, TESTS, longest_first
from tests.runner.scheduling import scope_of
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


def test_processes_keep_their_byte_code_whatever_the_image_sets() -> None:
    """Compiling the program takes a second of CPU, in each of hundreds of processes."""
    shown = 'echo "${PYTHONDONTWRITEBYTECODE-unset}"'
    command = ["/bin/bash", "-euo", "pipefail", "-c", f". scripts/environment.sh; {shown}"]
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "unset\n"


REAL_TIME = re.compile(
    r"support\.(waiting|processes|served_node|threaded_node|fake_group|loopback) import|asyncio\.timeout|wait_for\("
    r"|^(import|from) (threading|subprocess)|time\.(monotonic|time|sleep)\(", re.MULTILINE
)  # fmt: skip


def test_each_computing_test_is_in_exactly_one_step() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        name = path.relative_to(ROOT).as_posix()
        simulated = name.startswith(tuple(f"{each}/" for each in SIMULATED)) and not name.startswith(WITH_THREADS)
        timed = name.startswith(tuple(each if each.endswith(".py") else f"{each}/" for each in TIMED))
        assert simulated + timed + name.startswith("tests/tidy/") == 1, name


def test_simulated_tests_know_no_real_time() -> None:
    files = [path for each in SIMULATED for path in (ROOT / each).rglob("test_*.py")]
    files = [path for path in files if not path.relative_to(ROOT).as_posix().startswith(WITH_THREADS)]
    found = {path.relative_to(ROOT).as_posix() for path in files if REAL_TIME.search(path.read_text("utf-8"))}
    assert found == WITHOUT_LIMIT


WITHOUT_LIMIT = {"tests/sim/test_simulation.py", "tests/sim/test_simulator.py"}
"""They run a program without a time limit, or have a timeout in simulated time."""


def test_longest_files_exist_and_come_first() -> None:
    files = [TESTS / each for each in ("a.py", *reversed(LONGEST), "b.py")]
    longest_first(files, lambda file: file)
    assert files == [TESTS / each for each in (*LONGEST, "a.py", "b.py")]
    assert [each for each in LONGEST if not (TESTS / each).is_file()] == []


def test_tests_with_processes_lie_where_they_are_looked_for() -> None:
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "pytest.mark.e2e" in path.read_text("utf-8")]
    outside = [path for path in marked if not path.is_relative_to(ROOT / "tests/runner")]
    assert [path for path in outside if not any(path.is_relative_to(ROOT / each) for each in WITH_PROCESSES)] == []


def test_files_below_the_chained_folder_run_in_one_process_and_each_other_file_in_one() -> None:
    spark, other = f"{CHAIN}/test_ingest.py::test_a[x::y]", "tests/e2e/test_up.py::test_b"
    assert [scope_of(each, CHAIN) for each in (spark, other)] == [CHAIN, "tests/e2e/test_up.py"]
    assert scope_of(f"{CHAIN}s/test_a.py::test_c", CHAIN) == f"{CHAIN}s/test_a.py"


def test_tests_that_start_spark_are_below_the_chained_folder() -> None:
    uses = re.compile(r"\bspark: Any|usefixtures\(\"java\"\)|support\.spark_driver import")
    found = [path for path in (ROOT / "tests").rglob("test_*.py") if uses.search(path.read_text("utf-8"))]
    assert found
    assert [path for path in found if not path.is_relative_to(ROOT / CHAIN)] == []
