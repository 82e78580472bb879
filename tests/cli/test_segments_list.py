"""palisade segments list, show and nodes: a count that is not known is not shown as 0 (issue 16)."""

from __future__ import annotations

import csv
import io
import json
import socket
from importlib import import_module
from typing import Any
from unittest.mock import AsyncMock

import pytest
from click.testing import CliRunner

from palisade.catalog.segment import SegmentRecord
from palisade.catalog.segment_json import record_shape
from palisade.cli.main import main
from palisade.cli.session import CliSession
from palisade.client import Client
from palisade.segments.view import HEADER, node_summary, summary_row
from palisade.wire.segment_errors import UnknownSegment
from tests.support.cli_node import cli_node
from tests.support.segment_names import segment

GROWING = SegmentRecord(segment(1), 1, 0, 0, "", 2, ingester="n1", loaded=True)
PUBLISHED = SegmentRecord(segment(2), 1, 5, 800, f"rows-sha256:{'0' * 64}", 2)


def shape(record: SegmentRecord) -> dict[str, Any]:
    return {**record_shape(record), "state": "realtime" if record.is_growing else "served", "nodes": ["n1"]}


def output(command: str, found: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(CliSession, "call", lambda *_, **__: found)
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code == 0, done.output
    return done.stdout


def test_rows_of_a_growing_segment_are_not_known_to_its_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were shown as 0. `segments realtime list` asks its node for them."""
    found = {"segments": [shape(GROWING), shape(PUBLISHED)]}
    header, *rows = csv.reader(io.StringIO(output("segments list flights -o csv", found, monkeypatch)))
    assert [dict(zip(header, row, strict=True))["rows"] for row in rows] == ["-", "5"]


def test_show_has_no_size_and_digest_of_a_growing_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = output(f"segments show {segment(1)}", shape(GROWING), monkeypatch).splitlines()
    shown = dict(line.split(maxsplit=1) for line in lines)
    assert [shown[name] for name in ("rows", "size_bytes", "digest")] == ["-"] * 3
    lines = output(f"segments show {segment(2)}", shape(PUBLISHED), monkeypatch).splitlines()
    assert dict(line.split(maxsplit=1) for line in lines)["rows"] == "5"


def test_unknown_segment_ends_with_exit_code_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ended with exit code 3 and "retry", as if another node could have it (issue 16)."""
    refused = AsyncMock(side_effect=UnknownSegment("there is no segment"))
    monkeypatch.setattr(Client, "segment", refused)
    with cli_node() as node:
        done = CliRunner().invoke(main, f"segments show {segment(1)} --json --endpoints {node.endpoint}".split())
    assert done.exit_code == 1
    error = json.loads(done.stderr)["error"]
    assert (error["code"], error["retry"]) == ("unknown-segment", False)


def node_row(assigned: int, **found: Any) -> dict[str, str]:
    report = {"keeps": True, "local": 0, "bytes": 0, "segments": [], **found}
    return dict(zip(HEADER, summary_row(node_summary("n1", assigned, report)), strict=True))


def test_node_that_fetches_its_copies_is_loading() -> None:
    """The column why was empty while copies were missing."""
    first = {"error": None}
    assert node_row(12, local=3, segments=[first])["why"] == "loading: 9 copies are missing"
    assert node_row(12, local=11, segments=[first])["why"] == "loading: 1 copy is missing"
    assert node_row(12, local=12)["why"] == ""
    assert node_row(12, local=3, segments=[{"error": "the disk is full"}])["why"] == "the disk is full"
    assert "without --segments" in node_row(12, keeps=False)["why"]


def test_loading_is_no_error_in_json() -> None:
    found = {"keeps": True, "local": 3, "bytes": 0, "segments": [{"error": None}]}
    assert node_summary("n1", 12, found)["error"] is None


def test_dead_node_without_copies_has_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen node was listed only if it was assigned copies (issue 16)."""
    topology = {"logical": [], "physical": [{"id": "n2", "state": "dead"}, {"id": "n3", "state": "left"}]}
    monkeypatch.setattr(Client, "topology", AsyncMock(return_value=topology))
    with cli_node() as node:
        done = CliRunner().invoke(main, ["segments", "nodes", "--json", "--endpoints", node.endpoint])
    assert [(row["node"], row["error"]) for row in json.loads(done.stdout)["nodes"]] == [("n2", "no answer")]


@pytest.mark.parametrize(
    ("command", "module", "waits"),
    [
        ("nodes", "segments", "waiting: "),
        ("realtime list", "realtime", "waiting: "),
        ("assign", "segments", "assign: asking which nodes store segments; "),
    ],
)
def test_notice_names_the_node_that_has_not_answered(
    command: str, module: str, waits: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It named the node that had answered everything, or none (issue 16)."""
    monkeypatch.setattr("palisade.cli.waiting.NOTICE_S", 0.2)
    with cli_node() as node, socket.create_server(("127.0.0.1", 0)) as frozen:
        address = f"127.0.0.1:{frozen.getsockname()[1]}"
        monkeypatch.setattr(import_module(f"palisade.cli.{module}"), "addresses_in", lambda _: {"n7": address})
        for name, found in {"topology": {"physical": []}, "segments_list": {"data_sources": []}}.items():
            monkeypatch.setattr(Client, name, AsyncMock(return_value=found))
        where = ["--timeout", "1.5", "--endpoints", node.endpoint]
        done = CliRunner().invoke(main, ["segments", *command.split(), *where])
    assert f"palisade: {waits}no answer yet from n7 at {address}" in done.stderr


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("list", "there is no data source with segments"),
        ("list demo", "there is no segment of data source demo"),
        (
            "lookup demo --from 2013-01-01 --to 2013-02-01",
            "no node serves a segment of data source demo in this interval",
        ),
    ],
)
def test_empty_list_on_a_terminal_is_one_sentence(monkeypatch: pytest.MonkeyPatch, command: str, text: str) -> None:
    """It was the header of an empty table."""
    monkeypatch.setattr(CliSession, "call", lambda *_, **__: {"data_sources": [], "segments": [], "missing": []})
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    done = CliRunner().invoke(main, ["segments", *command.split()])
    assert (done.stdout, done.stderr) == ("", f"palisade: {text}\n")
