"""/v1/segments, and another node as a source: what it sends is bounded, checked, and never believed (issue 3)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession, web
from yarl import URL

from palisade.api.http.fast_path import HttpLimits
from palisade.api.http.problems import errors_as_answers
from palisade.api.http.request_body import HTTP_LIMITS
from palisade.api.http.v1_segment_copies import SEGMENT, SegmentCopyRoutes
from palisade.catalog.parquet_rows import parquet_of, table_of
from palisade.catalog.rows_digest import ColumnType
from palisade.catalog.segment import SegmentRecord
from palisade.metastore.requests import Put
from palisade.recovery.listeners import Listeners
from palisade.segments.disk import FolderDisk
from palisade.segments.holder import SegmentHolder
from palisade.segments.local_segments import LocalSegments
from palisade.segments.names import SIZE_BYTES_MAX, Wanted
from palisade.segments.peers import SegmentPeers
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.segments.sources import SourceFailed
from palisade.segments.verification import version_of
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.vault import Vault
from palisade.wire.segment_errors import NoSuchSegment
from tests.support.meta_driver import Driver
from tests.support.segment_names import name, segment
from tests.support.segment_world import Stock
from tests.support.vault_feed import follow

DAY, MISSING = name(1), name(2)
ROWS = parquet_of(table_of((("flight", ColumnType.INT),), [[number] for number in range(1000)]))
TEXT = b"the flights\x1e" * 10
WANTED = version_of(ROWS)


class Served:
    """An application on loopback."""

    def __init__(self, routes: list[web.RouteDef]) -> None:
        app = web.Application(middlewares=[errors_as_answers])
        app[HTTP_LIMITS] = HttpLimits()
        app.add_routes(routes)
        self._runner = web.AppRunner(app, access_log=None)
        self.address = ""

    async def start(self) -> Served:
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.address = f"127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def close(self) -> None:
        await self._runner.cleanup()


@pytest.fixture
def cluster() -> Driver:
    return Driver()


@pytest.fixture
async def holder(tmp_path: Path, cluster: Driver) -> SegmentHolder:
    vault = Vault(MemoryBackend())
    for day in (1, 2):
        record = SegmentRecord(segment(day), 1, 1000, WANTED.size_bytes, WANTED.digest, 1)
        cluster.do(Put(record.segment.key, record.to_bytes()))
    text = SegmentRecord(segment(4), 1, 10, len(TEXT), version_of(TEXT).digest, 1)
    cluster.do(Put(text.segment.key, text.to_bytes()))
    follow(vault, cluster)
    holder = SegmentHolder("n1", SegmentStore(FolderDisk(tmp_path)), Stock(), Listeners()).on(vault)
    await holder.local()
    holder.wanted = {DAY: WANTED, MISSING: WANTED}
    await holder.segment_store.put(DAY, await holder.segment_store.verifier.of(ROWS), ROWS)
    return holder


@pytest.fixture
async def node(holder: SegmentHolder) -> AsyncIterator[Served]:
    served = await Served(SegmentCopyRoutes("n1", LocalSegments(holder)).routes()).start()
    yield served
    await served.close()


@pytest.fixture
async def peers() -> AsyncIterator[SegmentPeers]:
    made = SegmentPeers()
    yield made
    await made.close()


async def asked(node: Served, path: str) -> tuple[int, Any, str]:
    async with ClientSession() as session, session.get(URL(f"http://{node.address}{path}", encoded=True)) as answer:
        body = await answer.read()
        kind = answer.content_type
        return answer.status, json.loads(body) if kind.endswith("json") else body, answer.headers.get("ETag", "")


async def test_listing_puts_missing_segments_first(node: Served) -> None:
    status, found, _ = await asked(node, "/v1/segments/copies")
    document = json.loads((Path(__file__).parents[2] / "palisade/api/openapi.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, document["components"]["schemas"]["SegmentCopies"])
    assert (status, found["assigned"], found["local"], found["missing"]) == (200, 2, 1, 1)
    assert [row["state"] for row in found["segments"]] == ["missing", "local"]
    assert found["bytes"] == WANTED.size_bytes
    assert (await asked(node, "/v1/segments/copies?limit=0"))[1]["segments"] == []


async def test_content_is_served_with_its_digest_and_only_in_the_requested_version(node: Served) -> None:
    assert await asked(node, f"/v1/segments/{DAY}/file") == (200, ROWS, f'"{WANTED.digest}"')
    assert (await asked(node, f"/v1/segments/{DAY}/file?digest={WANTED.digest}"))[0] == 200
    for path in (f"/v1/segments/{DAY}/file?digest=sha256:00", f"/v1/segments/{MISSING}/file"):
        status, problem, _ = await asked(node, path)
        assert (status, problem["code"]) == (404, "no-such-segment")


@pytest.mark.parametrize(
    "path",
    [DAY.replace("flights", bad) for bad in ("..%2f..%2fetc", "%2e%2e", "flights%00", ".incoming-1-flights", "a@b")]
    + [DAY[:-1], DAY.replace("T00", "T24"), DAY + "%00"],
)
async def test_path_is_not_accepted_as_a_name(node: Served, path: str) -> None:
    status, problem, _ = await asked(node, f"/v1/segments/{path}/file")
    assert (status, problem["code"]) == (400, "bad-request")


@pytest.mark.parametrize("query", ["limit=x", "limit=-1", "limit=1000000000", "other=1", "limit=1&limit=2"])
async def test_invalid_query_is_rejected(node: Served, query: str) -> None:
    assert (await asked(node, f"/v1/segments/copies?{query}"))[0] == 400


async def test_node_without_segments_answers_an_empty_list() -> None:
    served = await Served(SegmentCopyRoutes("n1", LocalSegments()).routes()).start()
    try:
        assert (await asked(served, "/v1/segments/copies"))[1]["keeps"] is False
        assert (await asked(served, f"/v1/segments/{DAY}/file"))[0] == 404
    finally:
        await served.close()


async def test_file_damaged_on_disk_is_not_served(node: Served, tmp_path: Path) -> None:
    (tmp_path / file_of(DAY)).write_bytes(b"X" + ROWS[1:])
    status, problem, _ = await asked(node, f"/v1/segments/{DAY}/file")
    assert status == 404
    assert "damaged" in problem["detail"]


async def test_rows_are_counted_only_of_the_version_in_the_record(
    node: Served, holder: SegmentHolder, tmp_path: Path
) -> None:
    """A file cut by a power loss has a digest of its own, which the next start reads."""
    path = f"/v1/segments/{DAY}/rows?columns=none"
    status, found, _ = await asked(node, path)
    assert (status, found["rows"], found["digest"]) == (200, 1000, WANTED.digest)
    for torn in (b"", ROWS[:500]):
        (tmp_path / file_of(DAY)).write_bytes(torn)
        await holder.local()
        status, problem, _ = await asked(node, path)
        assert (status, problem["code"]) == (404, "no-such-segment")


async def test_rows_have_the_columns_of_the_file(node: Served) -> None:
    status, found, _ = await asked(node, f"/v1/segments/{DAY}/rows")
    document = json.loads((Path(__file__).parents[2] / "palisade/api/openapi.json").read_text(encoding="utf-8"))
    jsonschema.validate(found, document["components"]["schemas"]["SegmentRows"])
    assert (status, found["rows"]) == (200, 1000)
    assert found["columns"] == [{"name": "flight", "type": "int", "nulls": 0, "min": 0, "max": 999}]


async def test_rows_of_a_file_that_is_not_parquet_are_not_counted(node: Served, holder: SegmentHolder) -> None:
    """Such as a segment that was published by an older version."""
    await holder.segment_store.put(name(4), version_of(TEXT), TEXT)
    status, problem, _ = await asked(node, f"/v1/segments/{name(4)}/rows?columns=none")
    assert (status, problem["code"]) == (409, "segment-without-rows")
    assert await asked(node, f"/v1/segments/{name(4)}/file") == (200, TEXT, f'"{version_of(TEXT).digest}"')


async def test_content_type_says_parquet(node: Served) -> None:
    async with ClientSession() as session, session.get(f"http://{node.address}/v1/segments/{DAY}/file") as answer:
        assert answer.content_type == "application/vnd.apache.parquet"


async def test_rows_of_a_segment_without_a_record_are_not_counted(node: Served, holder: SegmentHolder) -> None:
    await holder.segment_store.put(name(3), WANTED, ROWS)
    status, problem, _ = await asked(node, f"/v1/segments/{name(3)}/rows?columns=none")
    assert (status, problem["code"]) == (404, "no-such-segment")


async def test_rows_of_a_record_of_a_newer_version_are_not_counted(
    node: Served, holder: SegmentHolder, cluster: Driver, tmp_path: Path
) -> None:
    """Issue 17, "Bad input": nothing is counted, and the copy stays."""
    record = holder.record(DAY)
    assert record is not None
    cluster.do(Put(record.segment.key, record.to_bytes()[:-1] + b',"format":2}'))
    follow(holder.vault, cluster)
    status, problem, _ = await asked(node, f"/v1/segments/{DAY}/rows?columns=none")
    assert (status, problem["code"]) == (500, "catalog-newer-row")
    assert "install a newer version" in problem["detail"]
    assert (tmp_path / file_of(DAY)).read_bytes() == ROWS


async def test_node_that_has_no_vault_yet_counts_no_rows(tmp_path: Path) -> None:
    holder = SegmentHolder("n1", SegmentStore(FolderDisk(tmp_path)), Stock(), Listeners())
    with pytest.raises(NoSuchSegment):
        await holder.read_recorded(DAY)


async def test_another_node_is_a_source(node: Served, peers: SegmentPeers) -> None:
    peer = peers.peer("n1", node.address)
    assert await peer.get(DAY, WANTED) == ROWS
    with pytest.raises(SourceFailed, match="does not have it"):
        await peer.get(DAY, version_of(b"another version"))


async def test_truncated_download_is_rejected(peers: SegmentPeers) -> None:
    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(len(ROWS))})
        await response.prepare(request)
        await response.write(ROWS[:100])
        assert request.transport is not None
        request.transport.abort()
        return response

    served = await Served([web.get(f"/v1/segments/{SEGMENT}/file", cut)]).start()
    try:
        with pytest.raises(SourceFailed):
            await peers.peer("n1", served.address).get(DAY, WANTED)
    finally:
        await served.close()


async def test_endless_response_is_cut_and_redirects_are_not_followed(peers: SegmentPeers) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 65_536)

    async def elsewhere(request: web.Request) -> web.StreamResponse:
        raise web.HTTPFound("http://127.0.0.1:1/")

    routes = [web.get("/v1/segments/flights/{rest:.*}", endless), web.get("/v1/segments/weather/{rest:.*}", elsewhere)]
    served = await Served(routes).start()
    try:
        peer = peers.peer("n1", served.address)
        assert len(await peer.get(DAY, version_of(TEXT))) == len(TEXT) + 1
        assert len(await peer.get(DAY, WANTED)) == SIZE_BYTES_MAX + 1
        with pytest.raises(SourceFailed, match="HTTP 302"):
            await peer.get(name(1, "weather"), WANTED)
    finally:
        await served.close()


async def test_unreachable_peer_is_skipped_for_a_while(peers: SegmentPeers) -> None:
    served = await Served([]).start()
    await served.close()
    peer = peers.peer("n1", served.address)
    for said in ("connection refused", "within the last 10 s"):
        with pytest.raises(SourceFailed, match=said):
            await peer.get(DAY, Wanted(WANTED.digest, 1))
