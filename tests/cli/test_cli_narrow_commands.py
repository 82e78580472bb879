"""Commands on a terminal of 80 columns: names and explanations are complete, in as many lines as they need (issue 16).

Names of segments and keys were cut after 60 characters, and reasons with an ellipsis after 16.
"""

from __future__ import annotations

import importlib
from typing import Any

import click
import pytest
from click.testing import CliRunner

from palisade.cli.main import main
from palisade.cli.session import CliSession
from palisade.journal.client import JournalClient
from tests.support.cli_node import cli_node
from tests.support.segment_names import name

WIDTH = 80
SEGMENT = name(1)
REASON = "no copy of role orders answers at 192.168.100.12:20002: connection refused; start it"
realtime_module: Any = importlib.import_module("palisade.cli.realtime")


def shown(command: str, found: Any, monkeypatch: pytest.MonkeyPatch, width: int = WIDTH) -> tuple[list[str], str]:
    """The cells of the tables that the command prints for `found`, each with its lines joined, and the whole text."""
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    if found is not None:
        monkeypatch.setattr(CliSession, "call", lambda *_, **__: found)
    done = CliRunner().invoke(main, command.split(), env={"COLUMNS": str(width)})
    assert done.exit_code == 0, done.output
    text = click.unstyle(done.stdout)
    lines = text.splitlines()
    assert max(map(len, lines)) <= width, text
    return cells_of(lines), text


def cells_of(lines: list[str]) -> list[str]:
    """A row continues on lines whose other cells are empty; the tests here have one row in each table."""
    found, rows = list[str](), list[list[str]]()
    for line in [*lines, "└"]:
        if line.startswith("│"):
            rows.append([cell.strip() for cell in line.strip("│").split("│")])
        elif rows:
            found += [
                text for column in zip(*rows, strict=True) for text in ("".join(column), " ".join(column).strip())
            ]
            rows = []
    return found


def record(**changed: Any) -> dict[str, Any]:
    return {"segment": SEGMENT, "state": "overshadowed", "replicas": 2, "rows": 27_004, "nodes": ["n1", "n2", "n3"],
            "ingester": "", **changed}  # fmt: skip


def test_segments_list_has_whole_names_and_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    cells, text = shown("segments list demo", {"segments": [record()]}, monkeypatch)
    assert {SEGMENT, "overshadowed", "27004", "n1 n2 n3"} <= set(cells), text
    assert "…" not in text


def test_segments_lookup_has_whole_names_and_nodes_and_names_what_it_omits(monkeypatch: pytest.MonkeyPatch) -> None:
    _, start, end, *_ = SEGMENT.split("/")
    part = {"segment": SEGMENT, "from": start, "to": end, "nodes": ["n1", "n2"]}
    found = {"segments": [part], "missing": []}
    command = "segments lookup demo --from 2013-01-01 --to 2014-01-01"
    cells, text = shown(command, found, monkeypatch)
    assert {SEGMENT, "n1 n2"} <= set(cells), text
    assert "omitted here: from, to" in text
    cells, text = shown(command, found, monkeypatch, width=120)
    assert {SEGMENT, start, end, "n1 n2"} <= set(cells), text
    assert "omitted" not in text


def test_realtime_list_has_whole_names_and_notes(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"segment": SEGMENT, "node": "n1", "state": "damaged", "rows": None, "note": REASON}
    cells, text = shown("segments realtime list", [row], monkeypatch)
    assert {SEGMENT, "n1", "damaged", REASON} <= set(cells), text


def test_given_up_segments_have_whole_names_and_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    audit = {"segment": SEGMENT, "ingester": "n1", "by": "operator@host", "reason": REASON}
    cells, text = shown("segments realtime list --given-up", [audit], monkeypatch)
    assert {SEGMENT, "n1", "operator@host", REASON} <= set(cells), text


def test_segments_nodes_has_the_whole_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = dict.fromkeys(("assigned", "local", "missing", "expired", "trashed", "bytes"), 123_456_789)
    cells, text = shown("segments nodes", [{"node": "n1", **counts, "error": REASON}], monkeypatch)
    assert {"n1", REASON} <= set(cells), text


def test_journal_status_has_the_whole_reason_after_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def status(*_: Any) -> list[dict[str, Any]]:
        return [{"address": "192.168.100.12:20002", "state": "waiting", "reason": REASON}]

    monkeypatch.setattr(JournalClient, "status", status)
    cells, text = shown("journal status --role orders --copies 192.168.100.12:20002", None, monkeypatch)
    assert {"192.168.100.12:20002", "waiting", REASON} <= set(cells), text
    assert "reason" in text.splitlines()[1], text


def test_alarm_has_its_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    status = {"alarms": [{"alarm": "quota", "text": REASON}], "size_bytes": 1, "quota_bytes": 1, "leader": "n1"}
    cells, text = shown("alarm list", status, monkeypatch)
    assert {"quota", REASON} <= set(cells), text


def test_procedures_have_all_nodes_that_they_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [f"node-{number:02}" for number in range(1, 12)]
    view = {"id": "p-0000000000000001", "kind": "delete-database", "state": "waiting", "steps": [{"at_ms": 0}],
            "waiting": {"for": nodes, "revision": 12}}  # fmt: skip
    cells, text = shown("catalog procedures", [view], monkeypatch)
    assert {view["id"], f"{', '.join(nodes)} to have revision 12"} <= set(cells), text


def test_long_key_is_complete_and_only_its_value_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """`range` cut keys after 60 characters."""
    key = "/catalog/" + "k" * 90
    with cli_node() as node:
        environ = {"PALISADE_ENDPOINTS": node.endpoint}
        CliRunner().invoke(main, ["put", key, "v" * 90], env=environ)
        cells, text = shown(f"range {key} --endpoints {node.endpoint}", None, monkeypatch)
    assert key in cells, text
    assert "v…" in text
