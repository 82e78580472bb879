"""What a backup shows in a pipe, and how it continues after a node that froze (issue 16)."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

import pytest

from palisade.cli import progress_bar
from palisade.cli.session import CliSession
from palisade.node import backup_file


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
