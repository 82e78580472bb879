"""palisade segments realtime list: what records and reports of the nodes say about one segment."""

from __future__ import annotations

import asyncio
import importlib
import re
from typing import Any

import pytest
from click.testing import CliRunner

from palisade.base.http_request import Answer, NoAnswer
from palisade.cli.main import main
from palisade.cli.realtime import known, list_, one_of, reports_in
from palisade.segments.realtime_step import RealtimeState
from tests.support.cli_node import cli_node
from tests.support.segment_names import name

RECORD = {"segment": name(1), "ingester": "n1", "digest": "", "replicas": 1, "nodes": ["n1"]}
REPORT = {"segment": name(1), "node": "n1", "state": "realtime", "rows": 5, "error": None}
realtime_module: Any = importlib.import_module("palisade.cli.realtime")


@pytest.mark.parametrize(
    ("record", "report", "state", "note"),
    [
        ({}, REPORT, "realtime", None),
        ({"nodes": []}, REPORT, "missing", None),
        ({}, None, "missing", "its node does not answer"),
        ({"replicas": 0}, REPORT, "given-up", None),
        ({"digest": "rows-sha256:0"}, {**REPORT, "state": "handing-off"}, "handing-off", None),
    ],
)
def test_state_of_a_realtime_segment(record: dict[str, Any], report: Any, state: str, note: str | None) -> None:
    found = one_of({**RECORD, **record}, report)
    assert (found["state"], found["note"]) == (state, note)


def test_directory_that_its_node_cannot_read_is_listed_with_the_reason() -> None:
    content = {"node": "n1", "segments": [], "damaged": {name(1).replace("/", "@"): "a file is damaged at byte 9"}}
    (report,) = reports_in(content)
    found = one_of({**RECORD, "nodes": []}, report)
    assert (found["segment"], found["state"], found["rows"]) == (name(1), "damaged", None)
    assert found["note"] == "a file is damaged at byte 9"


class Cluster:
    """Three nodes, of which n1 is silent: its request ends when the others have answered, or in vain after 0.5 s."""

    def __init__(self) -> None:
        self.answered = list[str]()
        self.was_late = False
        self._all_answered = asyncio.Event()

    async def topology(self) -> dict[str, Any]:
        return {"logical": [{"id": name, "addresses": {"http": name}} for name in ("n1", "n2", "n3")]}

    async def segments_list(self, _: str) -> dict[str, Any]:
        return {"segments": [{**RECORD, "ingester": "n3", "nodes": ["n3"]}]}

    async def json(self, address: str, _: str) -> Answer:
        if address == "n1":
            await self._be_silent()
        self.answered.append(address)
        if len(self.answered) == 2:
            self._all_answered.set()
        segments = [{**REPORT, "node": "n3"}] if address == "n3" else []
        return Answer(200, {"node": address, "segments": segments, "damaged": {}}, {})

    async def _be_silent(self) -> None:
        try:
            async with asyncio.timeout(0.5):
                await self._all_answered.wait()
        except TimeoutError:
            self.was_late = True
        raise NoAnswer("n1", "no answer in time")

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None: ...


async def test_silent_node_does_not_delay_the_answers_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    monkeypatch.setattr("palisade.cli.node_requests.HttpRequests", lambda *_, **__: cluster)
    (found,) = await known(cluster, "demo", 5.0)
    assert (found["node"], found["state"], found["rows"]) == ("n3", "realtime", 5)
    assert not cluster.was_late, "n2 and n3 were asked only after n1 had been silent"


@pytest.mark.parametrize(("deadline_s", "timeout_s"), [(0.7, 0.7), (60.0, realtime_module.TIMEOUT_S)])
async def test_nodes_are_asked_within_the_deadline(
    deadline_s: float, timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--timeout 1` waited 5 s for a frozen node (issue 16)."""
    given, cluster = list[float](), Cluster()

    def requests(_: Any, *, timeout_s: float) -> Cluster:
        given.append(timeout_s)
        return cluster

    monkeypatch.setattr("palisade.cli.node_requests.HttpRequests", requests)
    await known(cluster, "demo", deadline_s)
    assert given == [timeout_s]


def test_list_gives_the_nodes_its_own_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[float]()

    async def known(_: Any, data_source: str, deadline_s: float, *_silent: Any) -> list[dict[str, Any]]:
        given.append(deadline_s)
        return []

    monkeypatch.setattr(realtime_module, "known", known)
    with cli_node() as node:
        done = CliRunner().invoke(
            main, ["segments", "realtime", "list", "--timeout", "2.5", "--endpoints", node.endpoint]
        )
    assert (done.exit_code, given) == (0, [2.5])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "there is no realtime segment"),
        (["clicks"], "there is no realtime segment of data source clicks"),
        (["--given-up"], "no segment was given up"),
    ],
)
def test_terminal_has_a_note_if_there_is_no_segment(
    arguments: list[str], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def known(*_: Any) -> list[dict[str, Any]]:
        return []

    monkeypatch.setattr(realtime_module, "known", known)
    with cli_node() as node:
        command = ["segments", "realtime", "list", *arguments, "--endpoints", node.endpoint]
        assert CliRunner().invoke(main, command).stderr == ""
        monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
        done = CliRunner().invoke(main, command)
        assert (done.stdout, done.stderr) == ("", f"palisade: {text}\n"), "no header without rows"


@pytest.mark.parametrize("state", [*RealtimeState, "missing", "damaged"])
def test_help_explains_each_state(state: str) -> None:
    """`opening` was missing."""
    states = " ".join((list_.help or "").split()).partition("States: ")[2]
    assert re.search(rf"(^|, ){state}( \(|,|\.$)", states)
