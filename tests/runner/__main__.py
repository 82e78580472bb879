"""`scripts/test`: every check and every test; `--quick`: the checks, the tests that belong to a change, and some seeds.

A change is what differs from where the branch left `main`, or on `main` from its last commit; files that git does not
know yet count.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.runner.affected import affected, import_graph
from tests.runner.steps import Run, Step

ROOT = Path(__file__).resolve().parents[2]
PYTEST = (".venv/bin/python", "-m", "pytest")
NO_RESTART = ("--max-worker-restart", "0")
"""A process of pytest-xdist that dies ends the step as failed. With restarts, `loadfile` waited for ever."""
BOTH = ("-n", str(os.cpu_count() or 2), "--dist", "loadfile", *NO_RESTART)
COMPUTING = ("-m", "not e2e", "--ignore=tests/tidy")
WITH_PROCESSES = ("tests/clients", "tests/differential", "tests/e2e", "tests/faults", "tests/fuzz", "tests/pipeline")
"""Where tests marked e2e are: to collect the other folders as well would take longer than most of them."""
SIMULATED = ("tests/catalog", "tests/contracts", "tests/fencing", "tests/journal", "tests/raftgroup", "tests/sim")
"""Computing tests without deadlines and threads. They may run with idle priority: however late they are, they pass."""
WITH_THREADS = (
    "tests/raftgroup/transport", "tests/raftgroup/test_commit_thread.py", "tests/raftgroup/test_journal_disk.py",
)  # fmt: skip
"""Except these."""
IN_SEEDS = "tests/sim/test_simulator.py::test_some_seeds_of_each_scenario"
"""The step of the seeds runs many more of each scenario."""
FOLDERS = tuple(f"tests/{each.name}" for each in (ROOT / "tests").iterdir() if any(each.glob("**/test_*.py")))
AT_ONCE, CHAIN = 3, "tests/pipeline"
"""E2e tests. Those with Spark take more than a processor each, so only one of them runs at a time: beside two of them,
a scenario of eight processes took longer than 30 s. The lane with idle priority uses the rest."""

BY_FILE = ("--dist", "loadfile", "--no-loadscope-reorder", *NO_RESTART)
"""Each file in one process; files begin in the order of `longest.py`."""
CHECKS = Step("checks", ("scripts/check",))
ALONE = Step("e2e, one at a time", (*PYTEST, *WITH_PROCESSES, "-m", "alone"))
SEVERAL = Step(
    f"e2e, {AT_ONCE} at once",
    (*PYTEST, *WITH_PROCESSES, *BY_FILE, "--chain", CHAIN, "-n", str(AT_ONCE), "-m", "e2e and not alone"),
)
TIMED = (*sorted(each for each in FOLDERS if each not in (*SIMULATED, "tests/tidy")), *WITH_THREADS)
COMPUTES = Step("computing tests", (*PYTEST, *TIMED, *BOTH, *COMPUTING))
SIMULATES = Step(
    "simulated tests",
    (*PYTEST, *SIMULATED, *BOTH, *COMPUTING, *(f"--ignore={each}" for each in WITH_THREADS), f"--deselect={IN_SEEDS}"),
    after=ALONE.name,
)
FIRST = (CHECKS, ALONE, SEVERAL, COMPUTES)
SECOND = (
    Step("planted faults", ("scripts/sim", "--plants")),
    Step("seeds", ("scripts/sim", "--count", "300")),
    SIMULATES,
)
"""Seeds and planted faults touch no disk, so they disturb no test that measures times; simulated tests write files."""
NO_TESTS = 5
"""The exit code of pytest where all that was named is deselected."""
SEEDS = Step("20 seeds", ("scripts/sim", "--count", "20"))


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def changed() -> list[str]:
    base = (git("merge-base", "HEAD", "main") or ["HEAD"])[0]
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


def computes(path: str) -> bool:
    """Whether a test file may contain computing tests; those of `tidy` are part of the checks."""
    marks = re.search(r"^pytestmark = .*", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)
    return not path.startswith("tests/tidy/") and (marks is None or "mark.e2e" not in marks[0])


def quick() -> int:
    files = git("ls-files", "--cached", "--others", "--exclude-standard")
    belong = affected(import_graph(ROOT, files), changed())
    chosen = () if belong is None else tuple(sorted(filter(computes, belong)))
    print("all tests are affected by the change" if belong is None else f"{len(chosen)} test files are affected")
    tests = Step("computing tests", (*PYTEST, *BOTH, *COMPUTING, *chosen), passes=(0, NO_TESTS))
    first = (Step("checks", ("scripts/check",)), *([tests] if belong is None or chosen else []))
    return Run().go(first, (SEEDS,))


def main(arguments: list[str]) -> int:
    if arguments == ["--quick"]:
        return quick()
    return Run().go(FIRST, SECOND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
