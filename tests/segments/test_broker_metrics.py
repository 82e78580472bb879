"""Metrics of the broker: its view, and its lookups by outcome (issue 17)."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from palisade.api.http.broker_families import broker_families
from palisade.recovery.listeners import Listeners
from palisade.segments.broker import SegmentBroker
from palisade.segments.broker_view import BrokerView
from palisade.wire.segment_errors import NoSuchDataSource
from tests.support.broker_ground import BrokerGround
from tests.support.segment_writer import SegmentWriter


def metrics(broker: SegmentBroker) -> dict[str, float]:
    samples = [each for family in broker_families(broker) for each in family.samples]
    return {each.name.removeprefix("palisade_broker_") + each.labels.get("outcome", ""): each.value for each in samples}


async def looked_up(times: int) -> tuple[BrokerGround, int]:
    """A lookup after each change; the number of answers."""
    ground, writer, answered = await BrokerGround().begin(), SegmentWriter(Random(3)), 0
    for _ in range(times):
        await ground.write(writer.command())
        with suppress(NoSuchDataSource):
            await ground.look_up()
            answered += 1
    return ground, answered


async def test_metrics_count_every_lookup_by_outcome() -> None:
    ground, answered = await looked_up(200)
    found = metrics(ground.broker)
    lookups = {name: value for name, value in found.items() if name.startswith("lookups_total")}
    assert sum(lookups.values()) == 200
    assert lookups["lookups_totalcomplete"] + lookups["lookups_totalmissing"] == answered
    assert min(lookups["lookups_totalcomplete"], lookups["lookups_totalmissing"]) > 5


async def test_metrics_show_revision_and_age_of_the_view() -> None:
    ground, _ = await looked_up(100)
    found, view = metrics(ground.broker), ground.broker._feed.view
    assert found["synced"] == 1
    assert found["revision"] == view.settled == ground.broker.revision
    assert found["view_age_seconds"] == ground.broker.age_s
    counts = found["segments_known"], found["segments_queryable"], found["segments_missing"]
    assert counts == view.counts()
    assert counts[0] > 0
    ground.now_s += 7.0
    assert metrics(ground.broker)["view_age_seconds"] >= 7


def test_broker_without_a_first_sync_has_no_age() -> None:
    found = metrics(SegmentBroker(Listeners(), BrokerGround, BrokerGround, float))  # type: ignore[arg-type]
    assert found["synced"] == found["revision"] == 0
    assert "view_age_seconds" not in found
    assert BrokerView().counts() == (0, 0, 0)
    assert list(broker_families(None)) == []
