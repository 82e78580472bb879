"""palisade recovery, status and topology against any kind of node over HTTP (issue 3, R4, R12)."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from click.testing import CliRunner, Result
from rich.console import Console
from rich.progress import Progress, TextColumn

from palisade.cli.main import main
from palisade.cli.recovery_watch import POLL_S, Bar, JsonLines, PlainLines, follow
from palisade.recovery.decision import Case
from palisade.recovery.report import RecoveryOutcome, RecoveryPhase, RecoveryReport
from palisade.recovery.report import RecoveryProgress as Done
from palisade.recovery.report_file import keep_report
from tests.support.processes import free_port

Answer = Callable[[web.Request, Any], tuple[int, Any]]
REPORT = RecoveryReport("f1", RecoveryOutcome.DONE, Case.B, Case.B, "missed", lv_before=2, lv=500, lm=500, mm=1)


def shape(done: int | None, *ended: RecoveryReport, total: int = 500) -> dict[str, Any]:
    """As GET /v1/recovery has it; `done` None: nothing is under way."""
    reports = [report.as_dict() for report in ended]
    under_way = None
    if done is not None:
        under_way = Done(RecoveryPhase.REPLAY, done, total, "revisions", 2.0).as_dict()
        running = RecoveryReport("f1", case=Case.B, lv_before=2, lv=2 + done, lm=502, waits=3)
        reports.append(running.as_dict())
    found = {
        "recoveries": reports[-100:],
        "begun": len(reports),
        "under_way": under_way,
        "catch_up_difference": 100,
        "acceptable_difference": 100,
    }
    return json.loads(json.dumps(found))  # type: ignore[no-any-return]


@contextmanager
def answering(answer: Answer) -> Iterator[str]:
    """HOST:PORT of something that answers over HTTP, in a thread of its own."""
    ready, stop, ports = threading.Event(), asyncio.Event(), list[int]()
    loops = list[asyncio.AbstractEventLoop]()

    async def handle(request: web.Request) -> web.Response:
        status, said = answer(request, await request.json() if request.can_read_body else None)
        if isinstance(said, str):
            return web.Response(status=status, text=said)
        return web.json_response(said, status=status)

    async def serve() -> None:
        app = web.Application()
        app.add_routes([web.route("*", "/{path:.*}", handle)])
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ports.append(runner.addresses[0][1])
        loops.append(asyncio.get_running_loop())
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"127.0.0.1:{ports[0]}"
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)


def one_by_one(*shapes: dict[str, Any]) -> Answer:
    left = list(shapes)

    def answer(request: web.Request, body: Any) -> tuple[int, Any]:
        return 200, left.pop(0) if len(left) > 1 else left[0]

    return answer


def run(*arguments: str) -> Result:
    result = CliRunner().invoke(main, list(arguments))
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.cli.recovery_watch.POLL_S", 0.0)


def test_ended_recovery_is_printed_at_once() -> None:
    with answering(one_by_one(shape(None, REPORT))) as at:
        result = run("recovery", "--at", at)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines()[0] == "f1: case b, done in 0.00 s: missed"


def test_running_recovery_is_followed_to_its_end_in_plain_lines() -> None:
    seen = [shape(done) for done in (0, 10, 20, 120, 130, 499)]
    with answering(one_by_one(*seen, shape(None, REPORT))) as at:
        result = run("recovery", "--at", at)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("f1: recovering, replay: 0 of 500 revisions; LV 2, LM 502; waited 3 times")
    assert [line.split(" of ")[0] for line in lines[:3]] == [
        "f1: recovering, replay: 0", "f1: recovering, replay: 120", "f1: recovering, replay: 499",
    ]  # fmt: skip
    assert "60/s, about 6 s left" in lines[1]
    assert lines[3] == "f1: case b, done in 0.00 s: missed"


def test_json_is_one_object_and_with_watch_a_line_per_change() -> None:
    with answering(one_by_one(shape(5))) as at:
        result = run("recovery", "--at", at, "--json")
        assert (result.exit_code, json.loads(result.stdout)) == (0, shape(5))
    seen = [shape(5), shape(5), shape(9), shape(None, REPORT)]
    left = list(seen)

    def answer(request: web.Request, body: Any) -> tuple[int, Any]:
        return (200, left.pop(0)) if left else (500, "the node has gone")

    with answering(answer) as at:
        result = run("recovery", "--at", at, "--json", "--watch")
    assert result.exit_code == 3, "the node does not answer any more"
    assert [json.loads(line) for line in result.stdout.splitlines()] == [seen[0], seen[2], seen[3]]
    assert json.loads(result.stderr)["error"]["code"] == "unreachable"


class Interrupted(Exception):
    pass


async def watched(screen: Any, *shapes: dict[str, Any], for_ever: bool = True) -> None:
    left = list(shapes)

    async def ask() -> dict[str, Any]:
        if not left:
            raise Interrupted
        return left.pop(0)

    with pytest.raises(Interrupted):
        await follow(ask, screen, for_ever)


async def test_watch_prints_each_later_recovery_once(capsys: pytest.CaptureFixture[str]) -> None:
    again = RecoveryReport("f1", RecoveryOutcome.DONE, Case.C, Case.C, "compacted")
    await watched(
        PlainLines(),
        shape(None, REPORT), shape(3, REPORT), shape(None, REPORT, again), shape(None, REPORT, again),
        shape(4, REPORT, again), shape(None, REPORT, again, REPORT),
    )  # fmt: skip
    heads = [line for line in capsys.readouterr().out.splitlines() if line.startswith("f1: case")]
    assert heads == ["f1: case c, done in 0.00 s: compacted", "f1: case b, done in 0.00 s: missed"]


async def test_watch_prints_the_first_recovery_of_a_restarted_node(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await watched(PlainLines(), shape(None, REPORT, REPORT), shape(None, REPORT))
    assert capsys.readouterr().out.count("f1: case b") == 1


async def test_watch_prints_only_new_recoveries(capsys: pytest.CaptureFixture[str]) -> None:
    """A node lists its last hundred."""
    many = [replace(REPORT, lv=number) for number in range(120)]
    await watched(PlainLines(), shape(None, *many[:110]), shape(None, *many[:112]), shape(None, *many))
    shown = [line.split(", LM")[0] for line in capsys.readouterr().out.splitlines() if "LV 2 ->" in line]
    assert shown == [f"    LV 2 -> {number}" for number in range(110, 120)]


async def test_stalled_recovery_is_printed_again_after_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    await watched(PlainLines(every=4), *[shape(7)] * 9)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_lines_of_a_stalled_recovery_are_less_than_two_seconds_apart_and_fewer_after_a_while(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They were 5 s apart (issue 16)."""
    lines, shown = PlainLines(), list[float]()
    for poll in range(120):
        lines.show(shape(7))
        if capsys.readouterr().out:
            shown.append(poll * POLL_S)
    gaps = [after - before for before, after in itertools.pairwise(shown)]
    assert max(gap for gap, began in zip(gaps, shown, strict=False) if began + gap <= 10) < 2
    assert 2 < max(gaps) <= 5


async def test_bar_has_phase_count_and_rate_and_disappears_at_the_end() -> None:
    console = Console(width=120, force_terminal=True, record=True)
    with Progress(TextColumn("{task.description}|{task.fields[said]}"), console=console) as progress:
        bar = Bar(progress)
        bar.show(shape(None))
        assert progress.tasks == []
        bar.show(shape(120))
        (task,) = progress.tasks
        assert (task.completed, task.total, task.description) == (120, 500, "f1: replay 24 %")
        assert task.fields["said"] == "replay: 120 of 500 revisions, 60/s, about 6 s left"
        bar.show(shape(130, total=0))
        (task,) = progress.tasks
        assert (task.completed, task.total, task.description) == (130, None, "f1: replay")
        bar.show(shape(None, REPORT))
        bar.ended(shape(None, REPORT)["recoveries"][0])
        assert progress.tasks == []
    assert "f1: case b, done" in console.export_text()


def test_json_lines_are_printed_on_change_only(capsys: pytest.CaptureFixture[str]) -> None:
    lines = JsonLines()
    for done in (1, 1, 2):
        lines.show(shape(done))
    lines.ended({})
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_closed_pipe_ends_the_command_silently() -> None:
    """`palisade recovery --watch --json | head -1`."""
    counts = count(1)
    with answering(lambda request, body: (200, shape(next(counts)))) as at:
        process = subprocess.Popen(
            [sys.executable, "-m", "palisade.cli", "recovery", "--at", at, "--watch", "--json"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["under_way"]["phase"] == "replay"
        process.stdout.close()
        assert (process.wait(30), process.stderr.read()) == (0, b"")
        process.stderr.close()


def test_ctrl_c_ends_the_command_with_130_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("palisade.cli.recovery_watch.follow", interrupted)
    result = run("recovery", "--at", "127.0.0.1:7401", "--watch")
    assert (result.exit_code, result.stdout) == (130, "")
    assert (
        result.stderr
        == "palisade: stopped following the recoveries; 'palisade recovery --at 127.0.0.1:7401' shows them\n"
    )


def test_catch_up_difference_is_changed_at_the_node() -> None:
    asked = []

    def answer(request: web.Request, body: Any) -> tuple[int, Any]:
        asked.append((request.method, request.path, body))
        return 200, {"catch_up_difference": 50, "before": 100}

    with answering(answer) as at:
        result = run("recovery", "--at", at, "--catch-up-difference", "50")
        assert "is 50 revisions until the next start; it was 100" in result.stdout
        shown = run("recovery", "--at", at, "--catch-up-difference", "50", "--json")
        assert json.loads(shown.stdout) == {"catch_up_difference": 50, "before": 100}
    assert asked == [("PUT", "/v1/recovery/catch-up-difference", {"revisions": 50})] * 2


def test_refusal_of_the_node_is_printed() -> None:
    problem = {"code": "bad-request", "detail": "revisions: is 0 to 10, not 11", "retry": False}
    with answering(lambda request, body: (400, problem)) as at:
        result = run("recovery", "--at", at, "--catch-up-difference", "11")
        assert (result.exit_code, result.stderr) == (1, "palisade: revisions: is 0 to 10, not 11\n")


@pytest.mark.parametrize("revisions", ["-1", "1000000000001"])
def test_catch_up_difference_out_of_range_is_wrong_usage(revisions: str) -> None:
    """The request was sent, and the exit code was 1."""
    result = run("recovery", "--at", "127.0.0.1:9", "--catch-up-difference", revisions)
    assert result.exit_code == 2
    assert f"'--catch-up-difference': {revisions} is out of range; give 0 to 1000000000000" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--at", "127.0.0.1:7401", "--data-dir", "d"],
        ["--data-dir", "d", "--watch"],
        ["--data-dir", "d", "--catch-up-difference", "1"],
        ["--at", "127.0.0.1:7401", "--watch", "--catch-up-difference", "1"],
        ["--at", "127.0.0.1:7401", "--catch-up-difference", "many"],
        ["--at", "127.0.0.1"],
        ["--at", "127.0.0.1:99999"],
        ["--at", "http://127.0.0.1:7401"],
    ],
)
def test_wrong_usage_sends_no_request(arguments: list[str]) -> None:
    assert run("recovery", *arguments).exit_code == 2


@pytest.mark.parametrize("said", ["<html>", [], {}, {"recoveries": []}, "null"])
def test_response_of_another_server_is_unavailable(said: Any) -> None:
    with answering(lambda request, body: (200, said)) as at:
        result = run("recovery", "--at", at)
        assert result.exit_code == 3, result.output
        assert at in result.stderr


FOLLOWER = {
    "cluster": "c1", "member": "f1", "role": "follower-node", "ready": True, "revision": 5532,
    "topology": {"phase": "active", "incarnation": 1, "waiting_for": None}, "recovery": None,
}  # fmt: skip


def test_status_and_topology_work_with_a_node_of_any_kind() -> None:
    """Issue 3: a follower has no stream."""
    physical = {
        "id": "f1",
        "state": "alive",
        "address": "127.0.0.1:7711",
        "instance": "i",
        "incarnation": 1,
        "tags": {},
    }
    view = {"physical": [physical], "logical": [], "version": 0, "logical_age_s": None, "strangers": {}}
    with answering(lambda request, body: (200, FOLLOWER if request.path == "/v1/status" else view)) as at:
        row = run("status", "--at", at).stdout.splitlines()[1].split("\t")
        assert row[:4] == ["f1", "follower-node", "-", "5,532"]
        assert row[7:] == ["yes", "active", *["-"] * 5, f"http://{at}"]
        (as_json,) = json.loads(run("status", "--at", at, "--json").stdout)["nodes"]
        assert (as_json["id"], as_json["revision"], as_json["term"]) == ("f1", 5532, None)
        shown = run("topology", "--at", at)
        assert shown.stdout.splitlines()[1].split("\t")[:3] == ["f1", "alive", "-"]
        assert "the logical topology is not known yet" in shown.stderr
        assert json.loads(run("topology", "--at", at, "--json").stdout) == view
    for command in ("status", "topology"):
        result = run(command, "--at", f"127.0.0.1:{free_port()}")
        assert (result.exit_code, "--http" in result.stderr) == (3, True)


def test_http_address_among_the_endpoints_gets_a_hint() -> None:
    """The error for the HTTP port, the only port of a follower, names --at."""
    with answering(lambda request, body: (400, "?")) as at:
        for command in ("status", "topology"):
            result = run(command, "--endpoints", at, "--timeout", "1")
            assert (result.exit_code, "--at" in result.stderr) == (1, True), result.stderr


def test_refusal_on_a_terminal_is_one_line_without_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich wrapped it, and wrote an empty line after it (issue 16)."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    problem = {"code": "wrong-port", "detail": "this is the stream port: use the HTTP API port", "retry": False}
    with answering(lambda request, body: (421, problem)) as at:
        result = run("recovery", "--at", at)
    assert result.exit_code == 1
    assert result.stderr.endswith(f"palisade: {at}: {problem['detail']}\n")


def test_recovery_without_options_reads_the_folders_of_the_local_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other commands find the cluster in .palisade; this one ended with exit code 2."""
    (tmp_path / ".palisade").mkdir()
    layout = {"cluster": "c1", "nodes": 3, "base_port": 7400}
    (tmp_path / ".palisade" / "cluster.json").write_text(json.dumps(layout))
    for name in ("n1", "n2"):
        folder = tmp_path / ".palisade" / name / "data"
        folder.mkdir(parents=True)
        keep_report(folder)(replace(REPORT, node=name))
    monkeypatch.chdir(tmp_path)
    result = run("recovery")
    assert [line[:3] for line in result.stdout.splitlines() if line.startswith("n")] == ["n1:", "n2:"]
    assert "--at HOST:PORT shows one in progress" in result.stderr
    monkeypatch.setenv("PALISADE_ENDPOINTS", "127.0.0.1:9")
    assert run("recovery").exit_code == 2, "it printed reports of another cluster than that of the other commands"


def test_folder_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    """It "had no recovery yet", with exit code 0 (issue 16)."""
    result = run("recovery", "--data-dir", str(tmp_path / "none"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"palisade: there is no folder {tmp_path}/none: give the data folder of a node")
    other = run("recovery", "--data-dir", str(tmp_path))
    assert (other.exit_code, other.stdout) == (1, "")
    assert other.stderr.startswith(f"palisade: {tmp_path} is not the data folder of a node: give one")
    (tmp_path / "node.json").write_text("{}")
    assert run("recovery", "--data-dir", str(tmp_path)).stdout == "no recovery has ended yet\n"
