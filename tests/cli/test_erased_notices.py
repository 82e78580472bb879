"""On a terminal, waiting notices and progress bars are erased, also if the command writes other output meanwhile.

Lines of `backup`, `recovery --at` and `journal read` stayed, unlike docs/cli.md states (issue 16).
"""

from __future__ import annotations

import asyncio
import importlib
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from rich.progress import Progress

from palisade.cli.main import main
from palisade.cli.recovery_watch import Bar
from palisade.cli.waiting import CLEAR_BELOW

backup_module: Any = importlib.import_module("palisade.cli.backup")
waiting_module: Any = importlib.import_module("palisade.cli.waiting")


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    monkeypatch.setattr(waiting_module, "silence_s", lambda: 0.05)
    monkeypatch.setattr(waiting_module, "LOOK_S", 0.02)


def left_on(stderr: str) -> str:
    """The text without the parts that were erased."""
    *_, last = stderr.split(CLEAR_BELOW)
    return last


def test_entries_of_a_journal_are_printed_after_the_notice_is_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = list[str]()

    async def entries(*_: Any) -> AsyncIterator[tuple[int, bytes]]:
        yield 1, b"one"
        await asyncio.sleep(0.3)
        yield 2, b"two"

    class Noted(waiting_module.TerminalNotice):  # type: ignore[name-defined,misc]
        def end(self) -> None:
            shown.append(self._shown)
            super().end()

    monkeypatch.setattr(waiting_module, "TerminalNotice", Noted)
    monkeypatch.setattr("palisade.journal.client.JournalClient.entries", entries)
    monkeypatch.setattr("palisade.journal.client.JournalClient.trouble", "no answer yet from 127.0.0.1:9")
    done = CliRunner().invoke(main, ["journal", "read", "--role", "r", "--copies", "127.0.0.1:9"])
    assert done.stdout == "1\tone\n2\ttwo\n"
    assert shown[-2].startswith("palisade: waiting: no answer yet from 127.0.0.1:9")
    assert left_on(done.stderr) == ""


def test_wait_for_a_backup_has_a_time_and_is_erased_before_its_bar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def urls_of(*_: Any) -> list[str]:
        return ["http://n1"]

    async def download(url: str, target: Any, show: Any, **_: Any) -> Any:
        await asyncio.sleep(0.3)
        show(7)
        raise backup_module.BrokenOff("it broke off after 7 bytes", begun=True)

    monkeypatch.setattr(backup_module, "urls_of", urls_of)
    monkeypatch.setattr(backup_module, "download", download)
    done = run_backup(tmp_path)
    before, _, after = done.stderr.partition(f"palisade: waiting: no backup yet from http://n1{CLEAR_BELOW}")
    *_, error = after.split("\x1b[2K")
    assert (before, error.startswith("palisade: http://n1: it broke off after")) == ("", True), done.stderr


def run_backup(folder: Path) -> Result:
    return CliRunner().invoke(main, ["backup", str(folder / "b"), "--endpoints", "127.0.0.1:9"])


def test_notice_about_a_silent_node_is_not_written_into_the_bar_of_its_recovery() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    bar = Bar(Progress(console=console, transient=True))
    under_way = {"phase": "replay", "done": 1, "total": 2, "unit": "revisions", "per_s": 1.0, "remaining_s": 1.0,
                 "seconds": 1.0}  # fmt: skip
    bar.show({"recoveries": [{"node": "n1"}], "under_way": under_way})
    assert bar._progress.live.is_started
    bar.hide()
    assert not bar._progress.live.is_started


def test_recovery_erases_the_notice_about_a_silent_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(*_: Any, **__: Any) -> dict[str, Any]:
        await asyncio.sleep(0.3)
        return {"recoveries": [], "begun": 0, "under_way": None}

    monkeypatch.setattr("palisade.cli.recovery.ask", ask)
    done = CliRunner().invoke(main, ["recovery", "--at", "127.0.0.1:9"])
    assert (done.stdout, left_on(done.stderr)) == ("no recovery has ended yet\n", "")
    assert done.stderr.startswith(f"palisade: waiting: no answer yet from 127.0.0.1:9{CLEAR_BELOW}")
