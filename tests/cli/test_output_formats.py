"""Every command that prints a table has the three formats of output."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from palisade import cli
from palisade.cli.main import main
from palisade.cli.recovery import COLUMNS
from palisade.client import Client
from tests.support.cli_node import cli_node
from tests.tidy.commands_page import commands

CLI = Path(cli.__file__).parent
NO_TABLE = {
    "init", "restore", "recover-quorum", "vault inspect", "vault verify", "vault export", "vault reset",
    "up", "scenario run", "journal append", "journal read",
}  # fmt: skip
"""Commands with --json that print one result, events, or entries as they arrive."""


def having(option: str) -> set[str]:
    """The commands with this option."""
    return {
        context.command_path.partition(" ")[2]
        for command, context in commands()
        if any(isinstance(each, click.Option) and option in each.opts for each in command.params)
    }


def rows_of(*arguments: str) -> list[list[str]]:
    result = CliRunner().invoke(main, [*arguments, "-o", "csv"])
    assert (result.exit_code, result.stderr) == (0, "")
    return list(csv.reader(io.StringIO(result.stdout)))


def test_every_command_with_json_has_the_other_formats() -> None:
    """`scenario list`, `pipeline list`, `journal status` and `recovery` had no -o."""
    assert having("--json") - having("--output") == NO_TABLE
    assert having("--output") <= having("--json")


def test_tables_are_printed_by_the_session_only() -> None:
    """So a table has all formats. Ranges that are printed in parts have them too (`test_range_in_parts`)."""
    users = {
        path.name
        for path in CLI.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and {"print_rows", "print_csv"} & {alias.name for alias in node.names}
    }
    assert users == {"session.py", "range_output.py"}


@pytest.mark.parametrize(("command", "header"), [("scenario", ["scenario", "case"]), ("pipeline", ["job", "does"])])
def test_lists_without_a_cluster_are_csv(command: str, header: list[str]) -> None:
    first, *rows = rows_of(command, "list")
    assert first[:2] == header
    table = CliRunner().invoke(main, [command, "list"]).stdout.splitlines()
    assert [row[0] for row in rows] == [line.split("\t")[0] for line in table[1:]]


def test_journal_status_is_csv() -> None:
    line = ["journal", "status", "--role", "r", "--copies", "127.0.0.1:9", "-o", "csv"]
    (first, row) = csv.reader(io.StringIO(CliRunner().invoke(main, line).stdout))
    known = {"address": "127.0.0.1:9", "state": "unreachable", "reason": "connection refused"}
    assert dict(zip(first, row, strict=True)) == dict.fromkeys(first, "-") | known


def test_recoveries_are_csv(tmp_path: Path) -> None:
    report = {name: f"the {name}" for name in COLUMNS} | {"error": None, "phases": {"ask": 0.1}}
    (tmp_path / "recovery.json").write_text(json.dumps(report))
    assert rows_of("recovery", "--data-dir", str(tmp_path)) == [
        list(COLUMNS),
        ["" if name == "error" else f"the {name}" for name in COLUMNS],
    ]


@pytest.mark.parametrize("command", ["status", "topology", "fencing", "bench put --total 1000", "segments nodes"])
def test_numbers_in_csv_have_no_separators_of_thousands(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench -o csv` had "1,000". The table of each command has them."""
    member = {"id": "n1", "role": "voter", "standing": "active", "incarnation": 1, "recovered_revision": 4810}
    holder = {"node": "n1", "incarnation": 1, "staged": 4829, "behind": 1000, "heard_ms": 5, "until_ms": 7}
    holder |= {"promised": False, "leaving": False, "reported_state": "active"}
    leader = {"id": "n1", "url": "http://h:1", "role": "leader", "revision": 5532}
    topology = {"physical": [], "logical": [{**member, "addresses": {"http": "h:1"}}]}
    copies = {"keeps": True, "local": 1234, "bytes": 567890, "segments": []}
    fencing = {"node": "n1", "lease": None, "leader": {"holders": [holder], "waits": []}}
    monkeypatch.setattr(import_module("palisade.cli.status"), "ask_all", returning([leader]))
    monkeypatch.setattr(import_module("palisade.cli.segments"), "ask_all", returning({"n1": copies}))
    monkeypatch.setattr(import_module("palisade.cli.fencing"), "of_leader", returning(fencing))
    monkeypatch.setattr(Client, "topology", returning(topology))
    with cli_node() as node:
        where = {"PALISADE_ENDPOINTS": node.endpoint}
        as_csv, table = (
            CliRunner().invoke(main, [*command.split(), *options], env=where).stdout for options in (("-o", "csv"), ())
        )
    cells = [cell for row in csv.reader(io.StringIO(as_csv)) for cell in row]
    number = re.compile(r"\d,\d{3}")
    assert {found.replace(",", "") for found in number.findall(table)} & set(cells)
    assert not any(number.search(cell) for cell in cells)


def returning(result: Any) -> Callable[..., Any]:
    async def answer(*_: Any, **__: Any) -> Any:
        return result

    return answer


def test_recovery_that_is_watched_has_no_rows() -> None:
    result = CliRunner().invoke(main, ["recovery", "--at", "127.0.0.1:9", "--watch", "-o", "csv"])
    assert (result.exit_code, "--watch can't print CSV" in result.stderr) == (2, True)
