"""What a backup and a restore show in a pipe, and how a backup continues after a node that froze (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from palisade.cli import progress_bar
from palisade.cli.main import main
from palisade.cli.session import CliSession
from palisade.node import backup_file
from palisade.node.data_dir_marker import FolderError
from palisade.node.restore import RestoreRequest

backup_module: Any = importlib.import_module("palisade.cli.backup")
MEMBER = {"id": "n1", "leader": True, "addresses": {"http": "n1:2"}}


def is_output(stream: Any) -> bool:
    """In place of `isatty`: stdout and stderr are terminals, stdin is a pipe."""
    return bool(stream.name != "<stdin>")


def test_bytes_without_a_terminal_are_shown_as_lines_less_than_two_seconds_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`palisade backup` in a pipe was silent while it verified a large file (issue 16)."""
    now = 0.0
    monkeypatch.setattr("palisade.cli.progress_bar.time.monotonic", lambda: now)
    with progress_bar.byte_bar("verifying", lines=True) as show:
        for look in range(10):
            now = look * 0.5
            show(look * 1000, 9000)
    shown = capsys.readouterr().err.splitlines()
    assert shown[0] == "palisade: verifying: 2,000 of 9,000 bytes (1 s)"
    assert [line.rsplit("(")[-1] for line in shown] == ["1 s)", "2 s)", "4 s)"]


@pytest.mark.parametrize(("sized", "size"), [(True, "5.0/9.0 kB"), (False, "5.0 kB")])
def test_bar_of_an_unknown_total_shows_what_is_known(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], sized: bool, size: str
) -> None:
    """A backup showed "36.5/? MB"."""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress_bar.byte_bar("backup", sized=sized) as show:
        show(5_000, 9_000 if sized else None)
    shown = click.unstyle(capsys.readouterr().err)
    assert (f" {size} " in shown, "/?" in shown) == (True, False)


def test_backup_that_breaks_off_in_the_middle_gives_the_next_node_the_whole_deadline(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Issue 16: the other nodes were not asked any more, as the deadline for the first byte was over."""
    command: Any = importlib.import_module("palisade.cli.backup")
    given = list[float]()

    async def urls_of(*_: Any) -> list[str]:
        return ["http://n1", "http://n2"]

    async def download(*_: Any, begin_s: float, **__: Any) -> Any:
        given.append(begin_s)
        await asyncio.sleep(0.3)
        raise command.BrokenOff("it broke off after 7 bytes (nothing received for 0.2 s)", begun=True)

    monkeypatch.setattr(command, "urls_of", urls_of)
    monkeypatch.setattr(command, "download", download)
    target = backup_file.BackupFile(tmp_path / "b.backup")
    with pytest.raises(command.BrokenOff):
        asyncio.run(command.take(CliSession(["127.0.0.1:1"], 0.2, as_json=True), target, False))
    target.discard()
    assert given == pytest.approx([0.2, 0.2], abs=0.05)


def test_backup_that_no_node_begins_names_the_nodes_that_do_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two of three nodes frozen it named the node that answers, and the others as not asked (issue 16)."""

    async def urls_of(_session: Any, state: Any, _timeout_s: float) -> list[str]:
        state.silent["127.0.0.1:8601"] = "no answer yet"
        return ["http://n3", "http://n1"]

    async def download(*_: Any, begin_s: float, **__: Any) -> Any:
        await asyncio.sleep(begin_s)
        raise backup_module.BrokenOff("no backup began within 0.2 s")

    monkeypatch.setattr(backup_module, "urls_of", urls_of)
    monkeypatch.setattr(backup_module, "download", download)
    with pytest.raises(
        backup_module.BrokenOff,
        match=r"n3: no backup began within 0.2 s; not asked before the deadline of 0.2 s: http://n1; "
        "no answer from 127.0.0.1:8601",
    ):
        asyncio.run(backup_module.take(CliSession(["127.0.0.1:1"], 0.2, as_json=True), None, False))


@pytest.mark.parametrize(
    ("option", "code"), [("--nodes=0", 2), ("--base-port=80", 2), ("--id=../n1", 1), ("--cluster=a b", 1)]
)
def test_values_of_a_restore_are_checked_before_the_backup_is_read(tmp_path: Path, option: str, code: int) -> None:
    """A backup of 120 MB was written first."""
    result = CliRunner().invoke(main, ["restore", str(tmp_path / "missing"), "--data-dir", str(tmp_path / "d"), option])
    assert result.exit_code == code
    assert option.removeprefix("--").partition("=")[0] in result.stderr


@pytest.mark.parametrize(
    "line",
    [
        "restore {file} --data-dir {folder}/d --id ../n1",
        "restore - --data-dir {folder}/d --id ../n1",
        "restore - --data-dir {folder}",
        "restore {folder}/none --data-dir {folder}/d",
        "restore {file} --data-dir {folder}/d",
        "backup {folder}/none --verify",
        "backup {file} --verify",
        "vault export {folder}/e --data-dir {folder}",
        "vault verify --data-dir {folder}",
    ],
)
def test_refusal_on_a_terminal_shows_no_bar(tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bar of 0 bytes stood before the error (issue 16)."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", is_output, raising=False)
    file = tmp_path / "file"
    file.write_bytes(b"no backup")
    refused = CliRunner().invoke(main, line.format(file=file, folder=tmp_path).split())
    assert refused.exit_code == 1, refused.output
    assert refused.stderr.startswith("palisade: "), refused.stderr
    assert len(refused.stderr.splitlines()) == 1, refused.stderr


@pytest.mark.parametrize("source", ["{file}", "-"])
def test_bar_of_a_restore_is_shown_once_it_begins(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def restore(parts: Iterator[bytes], name: str, request: Any, show: Callable[[int, int | None], None]) -> None:
        if source != "-":
            show(1, 3)
        raise FolderError("refused")

    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", is_output, raising=False)
    monkeypatch.setattr("palisade.node.restore.restore", restore)
    (tmp_path / "b").write_bytes(b"all")
    line = f"restore {source.format(file=tmp_path / 'b')} --data-dir {tmp_path / 'd'}"
    assert "restoring" in CliRunner().invoke(main, line.split()).stderr


def test_restore_shows_lines_while_the_data_of_the_nodes_are_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a pipe, it was silent from the last byte of the backup to its end."""
    command: Any = importlib.import_module("palisade.cli.restore")
    waiting: Any = importlib.import_module("palisade.cli.waiting")
    lines, shown = list[str](), threading.Event()

    def show(_: Any, text: str, waited_s: float) -> None:
        lines.append(text)
        if "the backup is read" in text:
            shown.set()

    async def restore(parts: Iterator[bytes], *_: Any) -> None:
        assert list(parts) == [b"all"]
        await asyncio.to_thread(shown.wait, 5)

    monkeypatch.setattr(waiting, "NOTICE_S", 0.01)
    monkeypatch.setattr(waiting.ProgressLines, "show", show)
    monkeypatch.setattr("palisade.node.restore.restore", restore)
    (tmp_path / "b.backup").write_bytes(b"all")
    request = RestoreRequest(tmp_path / "d")
    command.attempt(CliSession([], 0.0, as_json=False), str(tmp_path / "b.backup"), request)
    assert lines[-1].startswith("palisade: restoring: the backup is read; its data are checked and written to disk")


async def test_backup_asks_again_until_its_deadline_for_the_members(monkeypatch: pytest.MonkeyPatch) -> None:
    """With authorization and without a majority it gave up after a quarter of its deadline (issue 16)."""
    asked = []

    async def urls_of(*_: object) -> list[str]:
        asked.append(1)
        if len(asked) < 3:
            raise backup_module.NoMembers("no node can answer", later=True)
        return ["http://127.0.0.1:9"]

    monkeypatch.setattr(backup_module, "urls_of", urls_of)
    session, state = CliSession(["127.0.0.1:9"], 5.0, as_json=True), backup_module.BackupState()
    assert await backup_module.urls_in_time(session, state, time.monotonic() + 5) == ["http://127.0.0.1:9"]
    asked.clear()
    with pytest.raises(backup_module.NoMembers):
        await backup_module.urls_in_time(session, state, time.monotonic() + 0.3)
    assert len(asked) == 1


@pytest.mark.parametrize(("up_runs", "left_s", "asked"), [(True, 60.0, 3), (True, 0.1, 1), (False, 60.0, 1)])
async def test_backup_waits_for_the_nodes_that_a_running_up_is_starting(
    up_runs: bool, left_s: float, asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = list[str]()

    async def ask(address: str, _timeout_s: float, _wrong: Any, reasons: dict[str, str]) -> Mapping[str, Any] | None:
        requests.append(address)
        if len(requests) < 3:
            reasons[address] = "connection refused"
            return None
        return {"member": "n1", "leader": "n1", "members": [MEMBER]}

    monkeypatch.setattr("palisade.cli.status.ask", ask)
    session, state = CliSession(["n1:1"], left_s, as_json=False, up_runs=up_runs), backup_module.BackupState()
    with nullcontext() if asked == 3 else pytest.raises(backup_module.NoMembers, match="Nothing was written"):
        assert await backup_module.urls_in_time(session, state, time.monotonic() + left_s) == ["http://n1:2"]
    assert len(requests) == asked
