"""`realtime close` can be repeated: the outcome of a request may have been unknown (issue 17)."""

from __future__ import annotations

import pytest

from palisade.catalog.errors import NotAllowed
from palisade.catalog.publication import Manifest
from palisade.catalog.realtime import opening, published
from palisade.catalog.segment import SegmentRecord
from palisade.catalog.timeline import Interval
from palisade.client import Client
from palisade.client.realtime import RealtimeWriter
from palisade.client.realtime_changes import Closed
from palisade.metastore.requests import Put, Txn
from palisade.service.callers import THIS_NODE
from palisade.service.key_values import KeyValues
from palisade.wire.segment_errors import NoSuchSegment, SegmentError


async def opened(service: KeyValues) -> SegmentRecord:
    manifest, record = opening(Manifest("sales"), {}, Interval(0, 4), "n4", 1)
    puts = (Put(manifest.key, manifest.to_bytes()), Put(record.segment.key, record.to_bytes()))
    await service.write(Txn((), puts), caller=THIS_NODE)
    return record


async def publish(service: KeyValues, record: SegmentRecord) -> None:
    done = published(record, 5, 100, "sha256:" + "0" * 64)
    await service.write(Put(record.segment.key, done.to_bytes()), caller=THIS_NODE)


async def test_published_segment_is_closed_already(client: Client, service: KeyValues) -> None:
    """Its node was asked, which has it no more: exit code 3, and a retry never helped."""
    record = await opened(service)
    await publish(service, record)
    assert await client.realtime_closed(str(record.segment)) == Closed(5, before=True)
    assert await client.realtime_close(str(record.segment)) == 5


async def test_segment_that_is_handed_off_meanwhile_is_closed_already(
    client: Client, service: KeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await opened(service)

    async def close_of(*_: object) -> int:
        await publish(service, record)
        raise NoSuchSegment("node n4 receives no rows of it")

    monkeypatch.setattr(RealtimeWriter, "close_of", close_of)
    assert await client.realtime_closed(str(record.segment)) == Closed(5, before=True)


async def test_node_without_the_growing_segment_may_be_asked_again(
    client: Client, service: KeyValues, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = await opened(service)

    async def close_of(*_: object) -> int:
        raise NoSuchSegment("node n4 receives no rows of it")

    monkeypatch.setattr(RealtimeWriter, "close_of", close_of)
    with pytest.raises(NoSuchSegment, match="node n4"):
        await client.realtime_closed(str(record.segment))


async def test_segment_that_does_not_exist_is_not_retried(client: Client, service: KeyValues) -> None:
    record = await opened(service)
    with pytest.raises(SegmentError, match=r"there is no segment .*/00007") as refused:
        await client.realtime_closed(f"{str(record.segment).rpartition('/')[0]}/00007")
    assert not refused.value.retry


async def test_segment_that_was_given_up_cannot_be_closed(client: Client, service: KeyValues) -> None:
    record = await opened(service)
    await service.write(Put(record.segment.key, record.with_replicas(0).to_bytes()), caller=THIS_NODE)
    with pytest.raises(NotAllowed, match="was given up, so there is nothing to publish"):
        await client.realtime_closed(str(record.segment))
