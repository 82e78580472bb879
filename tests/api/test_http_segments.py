"""/v1/segments over HTTP: lookups, publications and changes, and invalid input (N2; issue 17)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession

from palisade.catalog.segment import SegmentRecord
from palisade.metastore.requests import Put, Range
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from tests.support.segment_names import name, segment
from tests.support.served_node import call

DIGEST = "sha256:" + "0" * 64
DOCUMENT = json.loads((Path(__file__).parents[2] / "palisade/api/openapi.json").read_text(encoding="utf-8"))
DAY = {"from": "2013-01-01", "to": "2013-01-02", "rows": 842, "size_bytes": 100, "digest": DIGEST}
NEXT = {**DAY, "from": "2013-01-02", "to": "2013-01-03"}
JANUARY = "/v1/segments/lookup?data_source=flights&from=2013-01-01&to=2013-02-01"


def fits(found: dict[str, Any], shape: str) -> None:
    jsonschema.validate(found, {**DOCUMENT["components"]["schemas"][shape], "components": DOCUMENT["components"]})


async def loaded(service: KeyValues, day: int, *nodes: str) -> None:
    """The segment is announced and marked as the coordinator does."""
    key = segment(day).key
    kv = service.store.range(Range(key)).kvs[0]
    await service.write(Put(key, SegmentRecord.from_bytes(key, kv.value).marked_loaded().to_bytes()), caller=THIS_NODE)
    for node in nodes:
        await service.write(Put(segment(day).announcement_key(node)), caller=THIS_NODE)


@pytest.fixture
async def published(http: ClientSession) -> None:
    status, found = await call(
        http, "POST", "/v1/segments/publish", {"data_source": "flights", "segments": [DAY, NEXT]}
    )
    assert (status, found) == (200, {"data_source": "flights", "published": 2})


@pytest.mark.usefixtures("published")
async def test_lookup_names_what_is_served_and_fails_with_the_exact_list(
    http: ClientSession, service: KeyValues
) -> None:
    status, found = await call(http, "GET", JANUARY)
    assert (status, found["segments"], found["complete"]) == (200, [], True)
    await loaded(service, 1, "n1", "n2")
    await loaded(service, 2)
    status, problem = await call(http, "GET", JANUARY)
    assert (status, problem["code"], problem["missing"], problem["retry"]) == (
        503, "segments-unavailable", [name(2)], True,
    )  # fmt: skip
    for policy in ("warn", "allow"):
        status, found = await call(http, "GET", f"{JANUARY}&on_missing={policy}")
        fits(found, "SegmentLookup")
        assert status == 200
        assert found["missing"] == [name(2)]
        assert not found["complete"]
        assert ("warning" in found) == (policy == "warn")
        assert [(each["segment"], each["nodes"]) for each in found["segments"]] == [(name(1), ["n1", "n2"])]
        assert found["segments"][0]["from"] == "2013-01-01T00:00:00.000Z"


@pytest.mark.usefixtures("published")
async def test_segments_are_listed_with_their_states(http: ClientSession, service: KeyValues) -> None:
    assert (await call(http, "GET", "/v1/segments"))[1]["data_sources"] == ["flights"]
    await loaded(service, 1, "n1")
    status, found = await call(http, "GET", "/v1/segments?data_source=flights")
    fits(found, "Segments")
    assert [(each["segment"], each["state"]) for each in found["segments"]] == [
        (name(1), "served"),
        (name(2), "loading"),
    ]
    status, found = await call(http, "GET", f"/v1/segments/{name(1)}")
    fits(found, "SegmentState")
    assert (status, found["rows"], found["nodes"]) == (200, 842, ["n1"])
    status, problem = await call(http, "GET", f"/v1/segments/{name(9)}")
    assert (status, problem["code"]) == (404, "unknown-segment")


@pytest.mark.usefixtures("published")
async def test_publishing_the_same_rows_again_changes_nothing(http: ClientSession) -> None:
    body = {"data_source": "flights", "segments": [DAY, {**NEXT, "digest": "sha256:" + "1" * 64}]}
    assert (await call(http, "POST", "/v1/segments/publish", body))[1]["published"] == 1
    _, found = await call(http, "GET", "/v1/segments?data_source=flights")
    assert [each["segment"] for each in found["segments"]] == [name(1), name(2), name(2, version=2)]


@pytest.mark.usefixtures("published")
async def test_changes_name_what_they_have_changed(http: ClientSession, service: KeyValues) -> None:
    await loaded(service, 1)
    of_day = {"data_source": "flights", "from": "2013-01-01", "to": "2013-01-02"}
    body = {**of_day, "replicas": 0}
    assert (await call(http, "POST", "/v1/segments/set-replicas", body))[1]["changed"] == [name(1)]
    assert (await call(http, "GET", JANUARY))[1]["unserved"] == [name(1)]
    one = {"data_source": "flights", "segments": [name(2)]}
    assert (await call(http, "POST", "/v1/segments/mark-unused", one))[1]["changed"] == [name(2)]
    await call(http, "POST", "/v1/segments/set-replicas", {"data_source": "flights", "replicas": 1, "all": True})
    await loaded(service, 1)
    assert (await call(http, "POST", "/v1/segments/reset-loaded", {"data_source": "flights"}))[1]["changed"] == [
        name(1)
    ]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("publish", {"data_source": "flights", "segments": []}, "at least one"),
        ("publish", {"data_source": "fl/ghts", "segments": [DAY]}, "invalid name"),
        ("publish", {"data_source": "flights", "segments": [{**DAY, "to": "2013-01-01"}]}, "is not before"),
        ("publish", {"data_source": "flights", "segments": [{**DAY, "rows": -1}]}, "rows"),
        ("publish", {"data_source": "flights", "segments": [{**DAY, "rows": True}]}, "rows"),
        ("publish", {"data_source": "flights", "segments": [{**DAY, "digest": "x"}]}, "digest"),
        ("publish", {"data_source": "flights", "segments": [{**DAY, "color": 1}]}, "unknown field"),
        ("publish", {"data_source": "flights", "segments": ["flights"]}, "not an object"),
        ("publish", {"data_source": "flights", "segments": [{"from": "2013-01-01"}]}, "has no"),
        ("publish", {"data_source": "flights", "segments": [DAY], "more": 1}, "no field"),
        ("mark-unused", {"data_source": "flights"}, "which segments"),
        ("mark-unused", {"data_source": "flights", "from": "2013-01-01"}, "which segments"),
        ("mark-unused", {"data_source": "flights", "segments": ["flights"]}, "is not <data source>"),
        ("set-replicas", {"data_source": "flights", "all": True, "replicas": 65}, "replicas"),
        ("set-replicas", {"data_source": "flights", "all": True, "replicas": "2"}, "replicas"),
        ("reset-loaded", {}, "data_source"),
    ],
)
async def test_invalid_change_is_rejected_with_its_field(
    http: ClientSession, path: str, body: dict[str, Any], text: str
) -> None:
    status, problem = await call(http, "POST", f"/v1/segments/{path}", body)
    assert status == 400, problem
    assert text in problem["detail"]


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 400), ("data_source=flights&from=2013-01-01", 400), ("data_source=flights&from=x&to=2013-01-01", 400),
     ("data_source=flights&from=2013-01-02&to=2013-01-01", 400), ("data_source=x&from=2013-01-01&to=2013-01-02", 404),
     ("data_source=x&from=2013-01-01&to=2013-01-02&on_missing=maybe", 400)],
)  # fmt: skip
async def test_invalid_lookup_is_rejected(http: ClientSession, query: str, status: int) -> None:
    assert (await call(http, "GET", f"/v1/segments/lookup?{query}"))[0] == status


@pytest.mark.usefixtures("published")
async def test_older_version_of_an_overlapping_interval_is_refused(http: ClientSession) -> None:
    other = {**DAY, "from": "2013-01-01T12:00", "to": "2013-01-02T12:00Z", "version": 0}
    body = {"data_source": "flights", "segments": [other]}
    status, problem = await call(http, "POST", "/v1/segments/publish", body)
    assert (status, problem["code"]) == (409, "catalog-not-allowed")
    assert "use a higher one" in problem["detail"]
