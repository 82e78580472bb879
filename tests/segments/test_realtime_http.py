"""/v1/segments/realtime and the rows of a realtime segment over HTTP: bad input is refused, and nothing is lost."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession

from palisade.api.http.v1_realtime import RealtimeRoutes
from palisade.api.http.v1_segment_copies import SegmentCopyRoutes
from palisade.base.http_request import TIMEOUT_HEADER
from palisade.segments.local_segments import LocalSegments
from tests.segments.test_http import Served
from tests.support.announcing_world import WorldStore
from tests.support.realtime_disk import LogFiles
from tests.support.realtime_world import IngestingNode, RealtimeWorld

SCHEMAS = json.loads((Path(__file__).parents[2] / "palisade/api/openapi.json").read_text(encoding="utf-8"))
OPEN = {"data_source": "sales", "from": "2013-03-01", "to": "2013-03-02", "columns": {"id": "int", "at": "timestamp"}}


class Api:
    def __init__(self, http: ClientSession, address: str, world: RealtimeWorld, node: IngestingNode) -> None:
        self._http, self._address, self.world, self.node = http, address, world, node

    async def ask(self, path: str, body: Any = None, timeout_ms: int = 0) -> tuple[int, dict[str, Any]]:
        """The world delivers every revision meanwhile. `timeout_ms`: the value of TIMEOUT_HEADER."""
        headers = {TIMEOUT_HEADER: str(timeout_ms)} if timeout_ms else {}

        async def request() -> tuple[int, dict[str, Any]]:
            url = f"http://{self._address}/v1/segments/{path}"
            async with self._http.request("GET" if body is None else "POST", url, json=body, headers=headers) as answer:
                return answer.status, await answer.json(content_type=None)

        found: tuple[int, dict[str, Any]] = await self.world.finished(request())
        return found


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    world = RealtimeWorld(1)
    world.deliver_all()
    for node in world.nodes.values():
        await node.start()
        await world.finished(node.own.renew())
    node = world.nodes["a"]
    routes = [
        *SegmentCopyRoutes("a", LocalSegments(node.holder, node.ingester)).routes(),
        *RealtimeRoutes("a", node.ingester).routes(),
    ]
    served = await Served(routes).start()
    async with ClientSession() as http:
        yield Api(http, served.address, world, node)
    await served.close()


def check_shape(name: str, value: Any) -> None:
    jsonschema.validate(value, {"$ref": f"#/components/schemas/{name}", "components": SCHEMAS["components"]})


async def test_segment_is_opened_filled_read_and_closed(api: Api) -> None:
    status, opened = await api.ask("realtime", OPEN)
    assert (status, opened["state"], opened["rows"]) == (200, "realtime", 0)
    check_shape("RealtimeSegment", opened)
    name = opened["segment"]
    rows = [[1, "2013-03-01T06:00:00Z"], {"id": 2}]
    status, found = await api.ask(f"{name}/rows", {"rows": rows, "position": 0})
    assert (status, found) == (200, {"node": "a", "segment": name, "rows": 2})
    check_shape("RealtimeRows", found)
    status, found = await api.ask(f"{name}/rows")
    assert (status, found["rows"], found["realtime"]) == (200, 2, True)
    check_shape("SegmentRows", found)
    assert [(each["name"], each["nulls"], each["min"], each["max"]) for each in found["columns"]] == [
        ("id", 0, 1, 2),
        ("at", 1, "2013-03-01T06:00:00Z", "2013-03-01T06:00:00Z"),
    ]
    status, found = await api.ask("realtime")
    check_shape("RealtimeSegments", found)
    assert [each["rows"] for each in found["segments"]] == [2]
    status, found = await api.ask(f"{name}/close", {})
    assert (status, found["state"], found["rows"]) == (200, "publishing", 2)
    status, found = await api.ask(f"{name}/rows", {"rows": [[3, None]], "position": 2})
    assert (status, found["code"]) == (409, "realtime-refused")
    await api.world.finished(api.node.hand_off.work())
    api.world.deliver_all()
    status, found = await api.ask(f"{name}/rows")
    assert (status, found["rows"], "realtime" in found) == (200, 2, False)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"columns": {}}, "columns"),
        ({"columns": {"id": "number"}}, "is not one of string, int"),
        ({"columns": ["id"]}, "is not an object"),
        ({"from": "2013-03-02"}, "is not before"),
        ({"replicas": 0}, "replicas"),
        ({"writer": 7}, "writer"),
        ({"data_source": "no/name"}, "data_source"),
        ({"more": 1}, "there is no field 'more'"),
    ],
)
async def test_bad_openings_are_refused(api: Api, change: dict[str, Any], text: str) -> None:
    status, found = await api.ask("realtime", {**OPEN, **change})
    assert (status, text in found["detail"]) == (400, True), found
    assert not api.node.ingester.held


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([], "is not a list of 1 to"),
        ("rows", "is not a list of 1 to"),
        ([[1]], "row 0: expected 2 values, got [1]"),
        ([[1, None], ["1", None]], "row 1: column id"),
        ([[True, None]], "column id"),
        ([[1 << 63, None]], "column id"),
        ([[1, "yesterday"]], "column at"),
        ([[1, 5]], "column at"),
        ([{"id": 1, "name": "a"}], "there is no column 'name'"),
    ],
)
async def test_bad_rows_are_refused_and_none_of_their_batch_is_stored(api: Api, rows: Any, text: str) -> None:
    _, opened = await api.ask("realtime", OPEN)
    status, found = await api.ask(f"{opened['segment']}/rows", {"rows": rows})
    assert (status, found["code"], text in found["detail"]) == (400, "bad-rows", True), found
    assert (await api.ask(f"{opened['segment']}/rows"))[1]["rows"] == 0


async def test_rows_of_an_unknown_segment_are_refused(api: Api) -> None:
    name = "sales/2013-03-01T00:00:00.000Z/2013-03-02T00:00:00.000Z/0000000000000001/00000"
    status, found = await api.ask(f"{name}/rows", {"rows": [[1, None]]})
    assert (status, found["code"]) == (404, "no-such-segment")


async def test_node_without_a_lease_acknowledges_nothing(api: Api) -> None:
    _, opened = await api.ask("realtime", OPEN)
    api.world.expire("a")
    status, found = await api.ask(f"{opened['segment']}/rows", {"rows": [[1, None]], "position": 0})
    assert (status, found["code"], found["retry"]) == (503, "realtime-not-announced", True)


async def test_opening_that_the_cluster_does_not_answer_is_answered_with_the_reason_before_the_client_leaves(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline of the write was no shorter than that of the client, whose own timeout always came first."""
    released, trouble = asyncio.Event(), list[str]()
    announce = WorldStore.announce

    async def held(self: WorldStore, *given: Any) -> Any:
        await released.wait()
        return await announce(self, *given)

    monkeypatch.setattr(WorldStore, "announce", held)
    monkeypatch.setattr(api.node.ingester, "trouble", lambda: trouble[0] if trouble else None)
    status, found = await api.ask("realtime", {**OPEN, "writer": "w1"}, timeout_ms=200)
    assert (status, found["code"], found["retry"]) == (504, "realtime-opening", True)
    assert "has not opened the segment within 0.2 s and continues to open it: a change may wait for" in found["detail"]
    trouble.append("a knows no leader")
    status, found = await api.ask("realtime", {**OPEN, "writer": "w1"}, timeout_ms=200)
    assert "and continues to open it: a knows no leader. Repeat the request" in found["detail"]
    trouble.clear()
    released.set()
    status, found = await api.ask("realtime", {**OPEN, "writer": "w1"}, timeout_ms=5000)
    assert status == 200
    assert len(api.node.ingester.held) == 1, "the opening that continued"


async def test_node_that_cannot_reach_the_leader_opens_nothing_and_gives_the_reason(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api.node.ingester, "trouble", lambda: "a knows no leader")
    status, found = await api.ask("realtime", OPEN)
    assert (status, found["code"], found["retry"]) == (503, "realtime-not-announced", True)
    assert found["detail"] == (
        "node a cannot write to the cluster: a knows no leader. Retry, or open it at a node that knows a leader "
        "('palisade status')"
    ), "the client adds whether any of its attempts may have opened one"
    assert not api.node.ingester.held


async def test_opening_that_fails_by_a_timeout_of_its_own_does_not_count_as_continued(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was reported as still being opened; from clients that announce no timeout, it was a TypeError."""

    async def fails(*_: Any) -> Any:
        raise TimeoutError("the disk does not answer")

    monkeypatch.setattr(api.node.ingester, "open", fails)
    announced, plain = await api.ask("realtime", OPEN, timeout_ms=5000), await api.ask("realtime", OPEN)
    assert announced[1]["code"] != "realtime-opening"
    assert (announced[0], announced[1]["code"]) == (plain[0], plain[1]["code"])


async def test_node_whose_disk_is_full_refuses_openings_and_rows(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async def full(self: LogFiles, name: str, content: bytes = b"") -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    _, opened = await api.ask("realtime", OPEN)
    with monkeypatch.context() as patch:
        patch.setattr(LogFiles, "sync", full)
        patch.setattr(LogFiles, "create", full)
        for path, body in ((f"{opened['segment']}/rows", {"rows": [[1, None]], "position": 0}), ("realtime", OPEN)):
            status, found = await api.ask(path, body)
            assert (status, found["code"], "no space left" in found["detail"]) == (507, "realtime-not-stored", True)
    status, found = await api.ask(f"{opened['segment']}/rows", {"rows": [[1, None]], "position": 0})
    assert (status, "until the node starts again" in found["detail"]) == (507, True), found
    assert (await api.ask(f"{opened['segment']}/rows"))[1]["rows"] == 0
