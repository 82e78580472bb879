"""Jobs of the pipeline while the cluster cannot answer: the reason comes before Spark is started, or in the progress.

With two of three nodes frozen, `palisade pipeline run history` gave it only at its end, after 40 s (issue 16).
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.pipeline import java, running
from palisade.pipeline.job import Report
from palisade.wire.recorded_history import SUFFIX
from tests.support.cli_node import CliNode, cli_node
from tests.support.waiting import until_in_thread

waiting_module: Any = importlib.import_module("palisade.cli.waiting")
DONE = Report({}, "done")
JOBS = ("history --to {folder}/a", "ingest --to file://{folder}/s", "audit --to {folder}/r", "retention")


class StandIn:
    """Stands for Spark and the job: calls `then`."""

    def __init__(self) -> None:
        self.runs = 0
        self.then: Callable[[], object] = lambda: None

    def run(self, *_: Any, **__: Any) -> Report:
        self.runs += 1
        self.then()
        return DONE


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    found = StandIn()
    monkeypatch.setattr(java, "require_pyspark", lambda: None)
    monkeypatch.setattr(java, "require_java", lambda: None)
    monkeypatch.setattr(running, "run_job", found.run)
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.1)
    monkeypatch.setattr(waiting_module, "LINES_S", 0.1)
    return found


@pytest.fixture
def stopping() -> Iterator[tuple[CliNode, Callable[[], None]]]:
    """A node, and the function that stops it."""
    with ExitStack() as opened:
        yield opened.enter_context(cli_node()), opened.close


@pytest.mark.parametrize("words", JOBS)
def test_job_without_a_leader_ends_before_spark_is_started(words: str, job: StandIn, tmp_path: Path) -> None:
    given = words.format(folder=tmp_path).split()
    with cli_node() as node:
        node.do(lambda: node.group.led_by(None))
        where = ("--timeout", "0.6", "--endpoints", node.endpoint)
        found = CliRunner().invoke(main, ["pipeline", "run", *given, *where])
        assert (found.exit_code, job.runs) == (3, 0)
        waited, *_, error = found.stderr.splitlines()
        assert waited.startswith("palisade: waiting: n1 knows no leader")
        assert "leader" in error
        node.do(lambda: node.group.led_by("n1"))
        found = CliRunner().invoke(main, ["pipeline", "run", *given, *where])
        assert (found.exit_code, job.runs, found.stdout) == (0, 1, "done\n")


def test_audit_of_histories_alone_asks_no_cluster(job: StandIn, tmp_path: Path) -> None:
    (tmp_path / f"a{SUFFIX}").touch()
    folder = str(tmp_path)
    words = ("audit", "--to", folder, "--histories", folder, "--history-only", "--endpoints", "127.0.0.1:9")
    assert CliRunner().invoke(main, ["pipeline", "run", *words]).exit_code == 0
    assert job.runs == 1


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_of_a_job_ends_with_the_reason_why_no_node_answers(
    terminal: bool,
    job: StandIn,
    stopping: tuple[CliNode, Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    node, stop = stopping
    shown = list[str]()

    def has_shown(text: str) -> Callable[[], bool]:
        def look() -> bool:
            shown.append(capsys.readouterr().err)
            return text in "".join(shown)

        return look

    def lose_the_node() -> None:
        until_in_thread(has_shown("retention: start Spark"), 5.0)
        stop()
        until_in_thread(has_shown(f"no connection to a node ({node.endpoint}: connection refused)"), 5.0)

    job.then = lose_the_node
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", "run", "retention", "--endpoints", node.endpoint])
    assert ended.value.code == 0
    text = "".join(shown)
    assert f"no connection to a node ({node.endpoint}: connection refused)" in text
    if not terminal:
        first, *_, last = text.splitlines()
        assert first.startswith("palisade: retention: start Spark")
        assert last.startswith(f"palisade: retention: start Spark; no connection to a node ({node.endpoint}: ")
