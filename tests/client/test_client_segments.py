"""Segments over the stream, as programs use them (issue 17)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.catalog.errors import DamagedRow, NewerRow
from palisade.client import Client
from palisade.metastore.requests import Put
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from palisade.vault.errors import Fenced, Pending
from palisade.wire.segment_errors import BrokerNotSynced, NoSuchDataSource, SegmentsUnavailable, UnknownSegment
from tests.api.test_http_segments import DAY, NEXT, loaded
from tests.support.segment_names import name, segment

JANUARY = "2013-01-01", "2013-02-01"


async def test_program_publishes_looks_up_and_changes_segments(client: Client, service: KeyValues) -> None:
    with pytest.raises(NoSuchDataSource):
        await client.segments_lookup("flights", *JANUARY)
    assert await client.segments_publish("flights", [DAY, NEXT]) == 2
    await loaded(service, 1, "n1")
    await loaded(service, 2)
    with pytest.raises(SegmentsUnavailable) as caught:
        await client.segments_lookup("flights", *JANUARY)
    assert caught.value.missing == (name(2),)
    found = await client.segments_lookup("flights", *JANUARY, on_missing="warn")
    assert found["missing"] == [name(2)]
    assert found["warning"]
    assert [each["nodes"] for each in found["segments"]] == [["n1"]]
    assert await client.segments_mark_unused("flights", start=JANUARY[0], end="2013-01-02") == [name(1)]
    assert await client.segments_reset_loaded("flights") == [name(2)]
    assert (await client.segments_lookup("flights", *JANUARY))["complete"]
    assert await client.segments_set_replicas("flights", 0) == [name(2)]
    assert (await client.segments_list())["data_sources"] == ["flights"]
    assert [each["state"] for each in (await client.segments_list("flights"))["segments"]] == ["unused", "unserved"]
    assert (await client.segment(name(2)))["replicas"] == 0
    with pytest.raises(UnknownSegment):
        await client.segment(name(9))


async def test_long_list_of_missing_segments_is_complete(client: Client, service: KeyValues) -> None:
    days = [{**DAY, "from": f"2013-01-{day:02}", "to": f"2013-01-{day + 1:02}"} for day in range(1, 31)]
    await client.segments_publish("flights", days)
    for day in range(1, 31):
        await loaded(service, day)
    with pytest.raises(SegmentsUnavailable, match="and 25 more") as caught:
        await client.segments_lookup("flights", *JANUARY)
    assert caught.value.missing == tuple(name(day) for day in range(1, 31))


async def test_damaged_record_refuses_lookups_instead_of_hiding_the_segment(client: Client, service: KeyValues) -> None:
    await client.segments_publish("flights", [DAY])
    await service.write(Put(segment(1).key, b"{"), caller=THIS_NODE)
    with pytest.raises(DamagedRow, match="lookups in data source flights are refused"):
        await client.segments_lookup("flights", *JANUARY, on_missing="allow")


async def test_record_of_a_newer_version_is_neither_served_nor_changed(client: Client, service: KeyValues) -> None:
    """Issue 17, "Bad input". The node before an upgrade, after a newer one has written the record."""
    days = [{**DAY, "from": f"2013-01-0{day}", "to": f"2013-01-0{day + 1}"} for day in (1, 2)]
    await client.segments_publish("flights", days)
    for day in (1, 2):
        await loaded(service, day, "n1")
    stored = await client.get(segment(1).key)
    assert stored is not None
    newer = stored.value[:-1] + b',"format":2}'
    await service.write(Put(segment(1).key, newer), caller=THIS_NODE)
    refused = (
        lambda: client.segments_lookup("flights", *JANUARY, on_missing="allow"),
        lambda: client.segments_list("flights"),
        lambda: client.segment(name(2)),
        lambda: client.segments_publish("flights", [{**DAY, "from": "2013-01-01", "to": "2013-01-02", "version": 2}]),
        lambda: client.segments_mark_unused("flights", start="2013-01-01", end="2013-01-02"),
        lambda: client.segments_set_replicas("flights", 0, start="2013-01-01", end="2013-01-02"),
        lambda: client.segments_reset_loaded("flights"),
    )
    for request in refused:
        with pytest.raises(NewerRow, match="has format 2, this version reads 1: install a newer version"):
            await request()
    kept = await client.get(segment(1).key)
    assert kept is not None
    assert kept.value == newer
    await service.write(Put(segment(1).key, stored.value), caller=THIS_NODE)
    assert len((await client.segments_lookup("flights", *JANUARY))["segments"]) == 2


async def test_unclear_choice_of_segments_is_refused(client: Client) -> None:
    with pytest.raises(ValueError, match="either names"):
        await client.segments_mark_unused("flights")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (BrokerNotSynced("starting; try again, or use another node"), "starting"),
        (Pending("not released yet; try again. It is released soon"), "not released yet. It is released soon"),
        (Fenced("cut off; reading from the cluster failed; try again"), "cut off; reading from the cluster failed"),
    ],
)
async def test_lookup_is_repeated_while_its_node_may_not_answer(
    client: Client, monkeypatch: pytest.MonkeyPatch, error: Exception, shown: str
) -> None:
    """The notice named no node, and advised to try again what the command itself repeats."""
    await client.segments_publish("flights", [DAY])
    call, refusals, troubles = client._call, [error, error], list[str | None]()

    async def refused_twice(name: str, *arguments: Any, **options: Any) -> Any:
        troubles.append(client.trouble)
        if refusals:
            raise refusals.pop()
        return await call(name, *arguments, **options)

    monkeypatch.setattr(client, "_call", refused_twice)
    assert (await client.segments_list())["data_sources"] == ["flights"]
    assert not refusals
    notice = f"{client.connected_to}: {shown}"
    assert notice.startswith("n1 at 127.0.0.1:")
    assert troubles == [None, notice, notice], "commands show it while they wait"
    assert client.trouble is None


async def test_lookup_is_repeated_until_its_timeout(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was given up after 5 s, whatever the timeout was (issue 16)."""
    monkeypatch.setattr(client, "_deadline_s", 0.2)
    monkeypatch.setattr(client, "_other_nodes", tuple)

    async def refused(*_: Any, **options: Any) -> Any:
        raise Fenced("cut off")

    monkeypatch.setattr(client, "_call", refused)
    now = asyncio.get_running_loop().time
    for timeout_s, least_s in ((0.4, 0.4), (None, 0.2)):
        began = now()
        with pytest.raises(Fenced, match=r"^n1 at 127\.0\.0\.1:\d+: cut off"):
            await client.segments_list(timeout_s=timeout_s)
        assert now() - began >= least_s
