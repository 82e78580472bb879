"""What commands that run until Ctrl-C print when it ends them (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from palisade.client.session import StreamSession
from palisade.node import backup_file
from tests.support.waiting import until_in_thread

Run = Callable[..., Result]
watch_module: Any = importlib.import_module("palisade.cli.watch")
lease_module: Any = importlib.import_module("palisade.cli.lease")


@pytest.fixture
def first_revision(run: Run, monkeypatch: pytest.MonkeyPatch) -> int:
    """Of two changes of /w. Ctrl-C comes when the second one is shown."""
    first: int = json.loads(run("put", "/w", "1", "--json").stdout)["revision"]
    run("put", "/w", "2")
    show = watch_module.show

    def shown(session: Any, events: Any) -> None:
        if events.revision > first:
            raise KeyboardInterrupt
        show(session, events)

    monkeypatch.setattr(watch_module, "show", shown)
    return first


def test_watch_names_the_revision_from_which_it_continues(run: Run, first_revision: int) -> None:
    result = run("watch", "/w", "--start-revision", str(first_revision))
    assert (result.exit_code, result.stdout) == (130, f"{first_revision}\tput\t/w\t1\n")
    assert result.stderr == (
        f"palisade: watched up to revision {first_revision}; --start-revision {first_revision + 1} continues\n"
    )


@pytest.mark.parametrize(("ahead", "printed"), [(1, False), (2, True)])
def test_watch_of_a_future_revision_names_the_newest_one(
    run: Run, monkeypatch: pytest.MonkeyPatch, ahead: int, printed: bool
) -> None:
    """It waited in silence."""
    newest = json.loads(run("put", "/w", "1", "--json").stdout)["revision"]
    warn = watch_module.warn_of_future

    async def ended_afterwards(client: Any, start_revision: int) -> None:
        await warn(client, start_revision)
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "silence_s", lambda: 0.0)
    monkeypatch.setattr(watch_module, "warn_of_future", ended_afterwards)
    result = run("watch", "/w", "--start-revision", str(newest + ahead))
    text = f"palisade watch: revision {newest + ahead} is in the future, the newest is {newest}; changes before"
    assert (result.exit_code, text in result.stderr) == (130, printed)


def test_watch_with_json_prints_no_remark(run: Run, first_revision: int) -> None:
    result = run("watch", "/w", "--start-revision", str(first_revision), "--json")
    assert (result.exit_code, result.stderr) == (130, "")


def test_watch_without_a_change_says_so(run: Run, first_revision: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watch_module, "show", interrupted)
    result = run("watch", "/w", "--start-revision", str(first_revision))
    assert (result.exit_code, result.stderr) == (130, "palisade: no change was received\n")


def test_keep_alive_names_the_time_at_which_the_lease_expires(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = run("lease", "grant", "30").stdout.strip()
    sleep = asyncio.sleep

    async def interrupted(seconds: float) -> None:
        if seconds == 10:
            raise KeyboardInterrupt
        await sleep(seconds)

    monkeypatch.setattr(lease_module.asyncio, "sleep", interrupted)
    result = run("lease", "keep-alive", lease)
    assert (result.exit_code, result.stdout) == (130, f"lease {lease}: 30 s\n")
    assert f"palisade: lease {lease} is no longer renewed; it expires within 30 s\n" in result.stderr


@pytest.mark.parametrize(("method", "text"), [("_on_frame", "may have been renewed"), ("_begin", "was not renewed")])
def test_keep_alive_that_ends_before_the_first_renewal_has_a_remark(
    run: Run, monkeypatch: pytest.MonkeyPatch, method: str, text: str
) -> None:
    """It ended without a line."""
    lease = run("lease", "grant", "30").stdout.strip()

    def interrupted(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(StreamSession, method, interrupted)
    result = run("lease", "keep-alive", lease)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == f"palisade: lease {lease} {text} by this command\n"


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (("put", "/w", "1"), "palisade: interrupted: the request may have been executed, or may still be executed\n"),
        (("put", "/w", "1", "--json"), ""),
        (("get", "/w"), ""),
    ],
    ids=["write", "with --json", "read"],
)
def test_write_in_flight_may_have_been_executed(
    command: tuple[str, ...], remark: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`put` at a cluster without a leader ended without a line."""

    def interrupted(self: StreamSession, *_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(StreamSession, "_on_frame", interrupted)
    result = run(*command)
    assert (result.exit_code, result.stderr) == (130, remark)


def test_listener_of_an_election_says_that_it_has_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    lock_module: Any = importlib.import_module("palisade.cli.lock")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lock_module, "show", interrupted)
    result = run("elect", "/leader/a", "--listen")
    assert (result.exit_code, result.stdout) == (130, "")
    assert (
        result.stderr
        == "palisade: stopped listening; run the command again to continue, beginning with the current leader\n"
    )


@pytest.mark.parametrize(
    ("written", "remark"), [(2, "at least 2 of 3 entries were written"), (0, "some entries may have been written")]
)
def test_load_counts_the_entries_that_are_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int, remark: str
) -> None:
    (tmp_path / "rows").write_text("".join(f'{{"key": "/n/{n}", "value": "x"}}\n' for n in range(3)))
    bulk_load: Any = importlib.import_module("palisade.client.bulk_load")
    load_entries = bulk_load.load_entries

    async def interrupted(store: Any, entries: Any, progress: Any) -> Any:
        progress(0, 3)
        if written:
            await load_entries(store, entries[:written], lambda done, total: progress(done, 3))
        raise KeyboardInterrupt

    monkeypatch.setattr(bulk_load, "load_entries", interrupted)
    result = run("load", str(tmp_path / "rows"))
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == f"palisade: {remark}; repeat the command to continue\n"


def test_load_that_ends_while_it_parses_lines_has_written_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Any) -> Any:
        raise KeyboardInterrupt

    (tmp_path / "rows").write_text('{"key": "/n/1", "value": "x"}')
    monkeypatch.setattr("palisade.cli.load.read_entries", interrupted)
    result = run("load", str(tmp_path / "rows"))
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "palisade: nothing was written\n")


def test_backup_reports_that_its_file_was_not_written(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr("palisade.cli.backup.from_one_of", interrupted)
    result = run("backup", str(tmp_path / "b"))
    assert (result.exit_code, list(tmp_path.iterdir())) == (130, [])
    assert result.stderr == f"palisade: the backup was interrupted; {tmp_path / 'b'} was not written\n"
    (tmp_path / "b").write_bytes(b"older")
    result = run("backup", "--overwrite", str(tmp_path / "b"))
    assert (result.exit_code, (tmp_path / "b").read_bytes()) == (130, b"older")
    assert result.stderr == f"palisade: the backup was interrupted; {tmp_path / 'b'} was not changed\n"


@pytest.mark.parametrize(("at", "left"), [("verifying", "was not written"), ("publishing", "is complete and verified")])
def test_backup_that_ends_while_it_verifies_reports_what_is_left(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str, left: str
) -> None:
    """Ctrl-C took effect after the verification: the file was complete, and was reported as not changed."""
    publish = backup_file.publish

    async def urls_of(*_: Any) -> list[str]:
        return ["http://n1"]

    async def download(*_: Any, **__: Any) -> None:
        return None

    def interrupt(step: str) -> None:
        if step == at:
            os.kill(os.getpid(), signal.SIGINT)

    def verify_file(_: Path, progress: Callable[[int, int], None]) -> tuple[None, None]:
        interrupt("verifying")
        progress(1, 1)
        return None, None

    def publishing(partial: Path, path: Path) -> None:
        interrupt("publishing")
        publish(partial, path)

    monkeypatch.setattr("palisade.cli.backup.urls_of", urls_of)
    monkeypatch.setattr("palisade.cli.backup.download", download)
    monkeypatch.setattr(backup_file, "verify_file", verify_file)
    monkeypatch.setattr(backup_file, "publish", publishing)
    result = run("backup", str(tmp_path / "b"))
    assert (result.exit_code, [each.name for each in tmp_path.iterdir()]) == (130, ["b"] if at == "publishing" else [])
    assert result.stderr == f"palisade: the backup was interrupted; {tmp_path / 'b'} {left}\n"


def test_restore_reports_that_its_folder_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(*_: Any) -> Any:
        (tmp_path / "copy" / "n1").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr("palisade.node.restore.restore", interrupted)
    (tmp_path / "b").write_bytes(b"")
    command = ("restore", str(tmp_path / "b"), "--data-dir", str(tmp_path / "copy"))
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, result.stdout) == (130, "")
    assert result.stderr == f"palisade: the restore was interrupted; {tmp_path / 'copy'} is complete\n"


def reads_stdin(pid: int) -> bool:
    """Whether a thread of the process is in a system call whose first argument is descriptor 0."""
    calls = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/syscall")]
    return any(call.split()[1:2] == ["0x0"] for call in calls)


def test_journal_append_that_waits_for_lines_ends_at_once() -> None:
    """It blocked in the read, and continued to wait after Ctrl-C."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "palisade.cli",
        "journal",
        "append",
        "--role",
        "r",
        "--copies",
        "127.0.0.1:9",
    ]
    main_end, end = pty.openpty()
    process = subprocess.Popen(command, stdin=end, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with os.fdopen(end), os.fdopen(main_end), process:
        try:
            assert process.stderr.readline().startswith("palisade: reading entries")
            until_in_thread(lambda: reads_stdin(process.pid), 5.0)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=10) == 130
        finally:
            process.kill()
