"""What a command that waits shows on stderr: within a second, and then less than 2 s apart (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import click
import pytest

from palisade.cli.main import main
from palisade.cli.process_age import process_age_s
from palisade.cli.session import CliSession
from palisade.pipeline.running import Seen

pipeline_module: Any = importlib.import_module("palisade.cli.pipeline")
waiting_module: Any = importlib.import_module("palisade.cli.waiting")


async def test_command_shows_the_cause_of_its_wait_after_a_while(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.01)
    async with waiting_module.waiting(lambda: "n1 does not\nanswer"):
        await asyncio.sleep(0.2)
    assert capsys.readouterr().err == "palisade: waiting: n1 does not answer\n"


@pytest.mark.parametrize(("columns", "rows_above"), [(0, 2), (80, 2), (200, 0)])
def test_notice_on_a_terminal_erases_its_own_rows_and_no_others(
    columns: int, rows_above: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A terminal without a size reports 0 columns: then the whole screen was erased."""
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 0)))
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2)
    notice = waiting_module.TerminalNotice()
    notice.show("x" * 180, 1.0)
    notice.end()
    up = f"\x1b[{rows_above}A" if rows_above else ""
    assert capsys.readouterr().err == f"{'x' * 180} (1 s){up}{waiting_module.CLEAR_BELOW}"


@pytest.mark.parametrize("late_s", [0.0, 0.05])
def test_lines_of_a_command_that_waits_are_less_than_two_seconds_apart(
    late_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 16: with two frozen nodes, commands in a pipe were silent for 2.6 s. `late_s`: of each look."""
    notice, shown = waiting_module.LineNotice(), list[float]()
    for look in range(36):
        now = look * (waiting_module.LOOK_S + late_s)
        notice.show("n1 is silent", now)
        line = capsys.readouterr().err
        if line:
            shown.append(now)
            assert line == f"n1 is silent{f' (for {now:.0f} s)' if now else ''}\n"
    assert 4 <= len(shown) <= 9
    assert all(after - before < 2 for before, after in itertools.pairwise([*shown, 36 * waiting_module.LOOK_S]))


@pytest.mark.parametrize("late_s", [0.0, 0.05])
def test_lines_of_progress_are_less_than_two_seconds_apart_until_the_end(
    late_s: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 16: `palisade bench` without a leader was silent for 9.7 s, as its lines came at growing intervals."""
    notice, shown = waiting_module.ProgressLines(), list[float]()
    for look in range(1000):
        now = look * (waiting_module.LOOK_S + late_s)
        notice.show("64 of 10,000", now)
        if line := capsys.readouterr().err:
            shown.append(now)
            assert line == (f"64 of 10,000 ({now:.0f} s)\n" if now >= 1 else "64 of 10,000\n")
    assert all(after - before < 2 for before, after in itertools.pairwise(shown))
    assert len(shown) > 1000 * waiting_module.LOOK_S / 2


async def test_notice_looks_as_often_as_its_lines_require(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks a second apart, each a little late, left 2 s between two lines (issue 16)."""
    slept, enough, sleep = list[float](), asyncio.Event(), asyncio.sleep

    async def noted(s: float) -> None:
        slept.append(s)
        if len(slept) > 4:
            enough.set()
        await sleep(0)

    monkeypatch.setattr(asyncio, "sleep", noted)
    async with waiting_module.waiting(lambda: "n1 is silent"):
        await enough.wait()
    assert set(slept[1:]) == {waiting_module.LOOK_S}
    assert waiting_module.LINES_S + waiting_module.LOOK_S < 2


async def test_notice_stops_while_the_command_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.01)
    reasons: Iterator[str | None] = itertools.chain(["n1 is silent", None, "n2 is silent"], itertools.repeat(None))
    async with waiting_module.waiting(lambda: next(reasons)):
        await asyncio.sleep(0.2)
    assert capsys.readouterr().err == "palisade: waiting: n1 is silent\npalisade: waiting: n2 is silent\n"


@pytest.mark.parametrize("notice", [waiting_module.TerminalNotice, waiting_module.LineNotice])
def test_time_of_a_wait_is_counted_from_its_own_start(notice: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """`palisade scenario run --all` counted from the start of the first scenario."""
    shows = notice()
    for now in (1.0, 2.5):
        shows.show("the next step of the first", now)
    shows.show(None, 40.0)
    capsys.readouterr()
    for now in (41.0, 43.2):
        shows.show("the next step of the last", now)
    shown = capsys.readouterr().err
    assert "(for 2 s)" in shown or "(3 s)" in shown
    assert "4" not in shown


@pytest.mark.parametrize(("waited_s", "time"), [(0.0, ""), (0.99, ""), (1.0, " (1 s)"), (2.6, " (3 s)")])
@pytest.mark.parametrize("kind", ["ProgressLines", "TerminalNotice"])
def test_time_of_a_notice_is_shown_from_one_second_on(
    kind: str, waited_s: float, time: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first notice of `load` and `scenario run` had "(0 s)"."""
    getattr(waiting_module, kind)().show("64 of 10,000", waited_s)
    assert capsys.readouterr().err.rstrip() == f"64 of 10,000{time}"


async def test_notice_on_a_terminal_names_each_reason_and_is_erased(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lines at growing intervals left a terminal silent for more than 2 s (issue 16)."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    reasons = itertools.chain(["n1 is silent"] * 3, itertools.cycle(["n2 is silent", "n3 is silent"]))
    async with waiting_module.waiting(lambda: next(reasons)):
        await asyncio.sleep(0.2)
    shown = capsys.readouterr().err.split(waiting_module.CLEAR_BELOW)
    assert len(shown) > 3
    assert shown[0] == "palisade: waiting: n1 is silent"
    assert shown[1:3] == ["palisade: waiting: n2 is silent", "palisade: waiting: n3 is silent"]
    assert shown[-1] == ""


@pytest.mark.parametrize("terminal", [True, False])
async def test_notice_of_a_command_with_json_is_shown_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], terminal: bool
) -> None:
    """A terminal was silent until the deadline (issue 16)."""
    monkeypatch.setattr(waiting_module, "NOTICE_S", 0.01)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    session = CliSession(["127.0.0.1:1"], 1.0, as_json=True)
    async with session.notice(lambda: "n1 is silent"):
        await asyncio.sleep(0.05)
    shown = capsys.readouterr().err
    assert shown.startswith("palisade: waiting: n1 is silent") is terminal
    assert shown.endswith(waiting_module.CLEAR_BELOW) if terminal else shown == ""


def test_notice_of_several_rows_is_erased_as_a_whole() -> None:
    for length, rows_above in ((1, 0), (80, 0), (81, 1), (160, 1), (161, 2)):
        up = f"\x1b[{rows_above}A" if rows_above else ""
        assert waiting_module.erasure_of("x" * length, 80) == f"{up}\r\x1b[J"


def test_silence_of_a_command_counts_from_the_start_of_its_process() -> None:
    """On a busy machine a command needed 3 s until its first sign: 2 s to start, and a second in silence."""
    for age_s, silence_s in ((0.3, 0.7), (30.0, waiting_module.NOTICE_S_MIN)):
        with click.Context(main, obj=lambda age_s=age_s: age_s):
            assert waiting_module.silence_s() == pytest.approx(silence_s)
    with click.Context(main):
        assert waiting_module.silence_s() == waiting_module.NOTICE_S


def test_age_of_a_process_is_its_own() -> None:
    program = "from palisade.cli.process_age import process_age_s; print(process_age_s())"
    began = time.monotonic()
    of_child = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert 0 < float(of_child.stdout) <= time.monotonic() - began + 0.02
    assert process_age_s() > float(of_child.stdout)


def test_job_of_the_pipeline_shows_its_phase_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was silent until its end: 24 s with two frozen nodes (issue 16)."""
    monkeypatch.setattr(waiting_module, "silence_s", lambda: 0.0)
    monkeypatch.setattr(waiting_module, "LOOK_S", 0.01)
    monkeypatch.setattr(waiting_module, "LINES_S", 0.05)
    with pipeline_module.task_lines("history", pipeline_module.no_trouble) as show:
        shown = printed_until("start Spark", capsys)
        show(Seen("reading", 1, 8, 3))
        shown += printed_until("reading", capsys)
    first, *_, last = shown.splitlines()
    assert first == "palisade: history: start Spark"
    assert last == "palisade: history: reading, 3 of 8 tasks"
    with pipeline_module.shown_progress("history", CliSession([], 1.0, as_json=True), None) as show:
        assert show is None


def printed_until(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Fails if `text` is not printed within ten seconds."""
    shown, until = "", time.monotonic() + 10
    while text not in shown:
        assert time.monotonic() < until, f"no {text!r} in {shown!r}"
        shown += capsys.readouterr().err
    return shown


def test_lines_of_a_pipeline_job_are_less_than_two_seconds_apart_until_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They came at growing intervals, unlike those of all other commands that show their progress (issue 16)."""
    now, looks = 0.0, threading.Semaphore(0)

    def clock() -> float:
        nonlocal now
        now += 0.3
        looks.release()
        return now

    monkeypatch.setattr(time, "monotonic", clock)
    monkeypatch.setattr(waiting_module, "silence_s", lambda: 0.0)
    monkeypatch.setattr(waiting_module, "LOOK_S", 0.001)
    with pipeline_module.task_lines("history", pipeline_module.no_trouble):
        for _ in range(100):
            assert looks.acquire(timeout=10)
    lines = capsys.readouterr().err.splitlines()
    assert all(line.startswith("palisade: history: start Spark") for line in lines)
    assert len(lines) > 30 / 2
