"""Commands that read a terminal print how the input ends (issue 16)."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from palisade.cli.main import main
from tests.support.cli_node import CliNode

READING = [
    (("txn",), "success\n put /a 1\n", "the input"),
    (("put", "/a", "--file", "-"), "1", "the input"),
    (("load", "-"), '{"key": "/a", "value": "1"}\n', "lines"),
]


def typed(node: CliNode, arguments: tuple[str, ...], text: str) -> Result:
    return CliRunner().invoke(main, arguments, input=text, env={"PALISADE_ENDPOINTS": node.endpoint})


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)


@pytest.mark.parametrize(("arguments", "text", "what"), READING)
@pytest.mark.usefixtures("terminal")
def test_command_that_reads_a_terminal_prints_how_the_input_ends(
    node: CliNode, arguments: tuple[str, ...], text: str, what: str
) -> None:
    result = typed(node, arguments, text)
    assert result.exit_code == 0
    assert result.stderr.startswith(f"palisade: reading {what} from the terminal; Ctrl-D ends the input\n")
    assert "reading" not in result.stdout


@pytest.mark.parametrize(("arguments", "text", "what"), READING)
def test_command_that_reads_a_pipe_prints_no_hint(
    node: CliNode, arguments: tuple[str, ...], text: str, what: str
) -> None:
    result = typed(node, arguments, text)
    assert (result.exit_code, f"reading {what}" in result.stderr) == (0, False)


@pytest.mark.usefixtures("terminal")
def test_journal_append_without_entries_prints_how_they_end() -> None:
    result = CliRunner().invoke(main, ["journal", "append", "--role", "r", "--copies", "127.0.0.1:9"], input="")
    hint = "palisade: reading entries, one on each line, from the terminal; Ctrl-D ends the input\n"
    assert result.stderr.startswith(hint)


@pytest.mark.usefixtures("terminal")
def test_restore_refuses_a_backup_from_a_terminal(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["restore", "-", "--data-dir", str(tmp_path / "d")], input="")
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert "a backup cannot be typed at a terminal" in result.stderr
