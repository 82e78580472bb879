"""Writing an assignment: only what differs, in pieces, and never two at a time (issue 4: segments on the nodes)."""

from __future__ import annotations

from typing import Any

import pytest

from palisade.catalog.demo.segments import records_of
from palisade.catalog.demo.tables import WEATHER
from palisade.catalog.segment import SegmentRecord
from palisade.client import Client
from palisade.client.publishing import publish
from palisade.metastore.requests import Put
from palisade.segments import assigning
from palisade.segments.assigning import AssignmentOvertaken, assign_segments, assigned_by_node
from palisade.segments.names import ASSIGNMENTS, LAST_ASSIGNMENT, Wanted
from palisade.wire.segment_errors import SegmentError
from tests.support.segment_names import name, segment

NODES = ["n1", "n2", "f1"]


def row(day: int) -> list[str]:
    found = ["0"] * len(WEATHER.header)
    known = {"year": "2013", "month": "1", "day": str(day), "time_hour": "2013-01-01T05:00:00Z"}
    for column, value in known.items():
        found[WEATHER.header.index(column)] = value
    return found


@pytest.fixture
async def catalog(client: Client) -> Client:
    await publish(client, WEATHER.name, records_of(WEATHER, [row(day) for day in range(1, 32)]))
    return client


def quiet(done: int, total: int) -> None:
    """Progress is not shown."""


async def assign(
    store: Any, nodes: list[str] = NODES, replicas: int | None = 2, prefix: str = ""
) -> assigning.Assigned:
    return await assign_segments(store, nodes, replicas, prefix, quiet)


async def assigned(client: Client) -> dict[str, set[str]]:
    found = assigned_by_node(await client.range(ASSIGNMENTS, prefix=True))
    return {node: set(names) for node, names in found.items()}


async def test_every_segment_gets_its_copies_and_a_repetition_writes_nothing(catalog: Client) -> None:
    first = await assign(catalog)
    assert (first.segments, first.assignments, first.written) == (31, 62, 31 + 62)
    names = await assigned(catalog)
    assert set().union(*names.values()) == {name(day, "weather") for day in range(1, 32)}
    assert sum(map(len, names.values())) == 62
    before = (await catalog.range(b"/none")).revision
    assert (await assign(catalog, NODES[::-1])).written == 0
    assert (await catalog.range(b"/none")).revision == before


async def test_assigning_names_the_nodes_that_get_no_copies_any_more(catalog: Client) -> None:
    """Issue 16: `assign` while a node was frozen took all copies from it without a message."""
    assert (await assign(catalog)).left_out == ()
    assert (await assign(catalog, NODES[:2])).left_out == tuple(NODES[2:])
    assert (await assign(catalog)).left_out == ()


async def test_assigning_a_prefix_leaves_the_rest_unchanged(catalog: Client) -> None:
    await assign(catalog)
    before = await assigned(catalog)
    await assign(catalog, ["n1"], 1, "weather/2013-01-0")
    now = await assigned(catalog)
    assert (now["n1"] - before["n1"]) <= {name(day, "weather") for day in range(1, 10)}
    assert not any(each.startswith("weather/2013-01-0") for each in now["n2"] | now["f1"])
    assert now["n2"] == {each for each in before["n2"] if "weather/2013-01-0" not in each}


async def test_unused_segment_loses_its_assignments(catalog: Client) -> None:
    await assign(catalog)
    last = segment(31, "weather")
    record = SegmentRecord.from_bytes(last.key, (await catalog.range(last.key)).kvs[0].value)
    await catalog.segments_txn((), [Put(last.key, record.marked_unused().to_bytes())])
    damaged = Put(ASSIGNMENTS + b"n1/no segment at all", Wanted(record.digest, 1).to_value())
    await catalog.segments_txn((), [damaged])
    await assign(catalog)
    assert all(str(last) not in names for names in (await assigned(catalog)).values())
    assert await catalog.get(ASSIGNMENTS + b"n1/no segment at all") is None
    done = await assign(catalog, [], 0)
    assert done.assignments == 0
    assert await assigned(catalog) == {}


async def test_assigning_without_enough_nodes_is_refused_in_the_singular_for_one(catalog: Client) -> None:
    """The message was "1 replicas need 1 nodes"."""
    with pytest.raises(SegmentError, match="1 replica needs 1 node, but only 0 store segments"):
        await assign(catalog, [], 1)
    with pytest.raises(SegmentError, match="2 replicas need 2 nodes, but only 1 stores segments"):
        await assign(catalog, ["n1"], 2)


async def test_more_replicas_than_nodes_are_rejected_without_a_write(catalog: Client) -> None:
    with pytest.raises(SegmentError, match="3 replicas need 3 nodes, but only 2 store segments"):
        await assign(catalog, ["n1", "n2"], 3)
    assert await catalog.get(LAST_ASSIGNMENT) is None


async def test_one_segment_with_more_replicas_than_nodes_does_not_prevent_the_assignment_of_the_others(
    catalog: Client,
) -> None:
    """`segments assign` refused all segments, without the name of the one that caused it."""
    many = segment(31, "weather")
    record = SegmentRecord.from_bytes(many.key, (await catalog.range(many.key)).kvs[0].value)
    await catalog.segments_txn((), [Put(many.key, record.with_replicas(5).to_bytes())])
    done = await assign(catalog, NODES, None)
    assert done.short == ((str(many), 5),)
    assert done.as_dict()["short"] == [{"segment": str(many), "replicas": 5}]
    assert done.assignments == 30 * record.replicas + len(NODES)
    assert all(str(many) in names for names in (await assigned(catalog)).values())
    with pytest.raises(SegmentError, match="but only 0 store segments"):
        await assign(catalog, [], None)


async def test_earlier_of_two_concurrent_assignments_stops(catalog: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a repetition makes all of it right."""
    monkeypatch.setattr(assigning, "OPERATIONS", 10)
    begun: list[int] = []

    class Overtaken:
        range = catalog.range

        async def segments_txn(self, compare: Any, success: Any) -> Any:
            begun.append(1)
            if len(begun) == 3:
                await assign(catalog, ["n1"], 1)
            return await catalog.segments_txn(compare, success)

    with pytest.raises(AssignmentOvertaken) as overtaken:
        await assign(Overtaken(), NODES, 2)
    assert overtaken.value.retry
    assert len(begun) == 3
    await assign(catalog, ["n1"], 1)
    assert set(await assigned(catalog)) == {"n1"}
