"""What `palisade load` shows while it reads and parses its input, before it writes (issue 16)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.cli.request_progress import RequestProgress
from palisade.cli.session import CliSession
from tests.support.waiting import until_in_thread

load_module: Any = importlib.import_module("palisade.cli.load")
waiting_module: Any = importlib.import_module("palisade.cli.waiting")
LINES = 3_000


class Load:
    """A load whose parser pauses at line 1,500, for at most `within_s`, until stderr has a text. It ends there, as no
    node runs at its address."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], file: Path) -> None:
        self.shown = ""
        self._capsys, self._file = capsys, file
        file.write_text("".join(f'{{"key": "/n/{n}", "value": "x"}}\n' for n in range(LINES)))
        for name in ("NOTICE_S", "LOOK_S", "LINES_S"):
            monkeypatch.setattr(waiting_module, name, 0.01)
        self._parse = load_module.read_entries
        monkeypatch.setattr(load_module, "read_entries", self._paused)

    def run(self, until: str, within_s: float, *options: str) -> None:
        self._until, self._within_s = until, within_s
        with pytest.raises(SystemExit) as ended:
            main(["load", str(self._file), "--endpoints", "127.0.0.1:9", *options])
        assert ended.value.code == 3

    def _paused(self, lines: Iterable[bytes]) -> Any:
        def slow() -> Iterable[bytes]:
            for number, line in enumerate(lines):
                if number == LINES // 2:
                    self._pause()
                yield line

        return self._parse(slow())

    def _pause(self) -> None:
        until_in_thread(self._has_shown, self._within_s)

    def _has_shown(self) -> bool:
        self.shown += self._capsys.readouterr().err
        return self._until in self.shown


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Load:
    return Load(monkeypatch, capsys, tmp_path / "some.ndjson")


@pytest.mark.parametrize("terminal", [False, True])
def test_load_shows_how_much_of_its_input_is_parsed(
    load: Load, terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was silent for 3.5 s with a file of 64 MB."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    load.run("parsing lines, 1,000 of 3,000", 5.0)
    assert "some.ndjson: parsing lines, 1,000 of 3,000" in load.shown


def test_load_with_json_shows_nothing_while_it_parses(load: Load) -> None:
    load.run("anything", 0.2, "--json")
    assert load.shown == ""


def test_terminal_at_which_the_input_is_typed_shows_no_progress(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line would be written into the typed text."""
    session, progress = CliSession([], 1.0, as_json=False), RequestProgress("load -")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert isinstance(load_module.shown_while_reading(session, "-", progress), nullcontext)
    assert not isinstance(load_module.shown_while_reading(session, "some.ndjson", progress), nullcontext)


@pytest.mark.parametrize(("more", "note"), [((), "palisade: nothing was written\n"), (("--json",), "")])
def test_load_that_is_interrupted_while_it_reads_has_no_result(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], note: str
) -> None:
    """It printed an empty line, which is not an object (`palisade load flights --json` in a pipe)."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("palisade.client.bulk_load.read_demo", interrupted)
    shown = CliRunner().invoke(main, ["load", "flights", *more])
    assert (shown.exit_code, shown.stdout, shown.stderr) == (130, "", note)
