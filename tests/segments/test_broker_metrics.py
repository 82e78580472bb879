"""Metrics of the broker: its view, and its lookups by outcome (issue 17)."""

from __future__ import annotations

from palisade.api.http.broker_families import broker_families
from palisade.recovery.listeners import Listeners
from palisade.segments.broker import SegmentBroker
from palisade.segments.broker_view import BrokerView
from tests.support.broker_world import BrokerWorld


def metrics(broker: SegmentBroker) -> dict[str, float]:
    samples = [each for family in broker_families(broker) for each in family.samples]
    return {each.name.removeprefix("palisade_broker_") + each.labels.get("outcome", ""): each.value for each in samples}


def test_metrics_count_every_lookup_by_outcome() -> None:
    world = BrokerWorld(3)
    world.restart = lambda: None  # type: ignore[method-assign]
    answered = world.walk(200)
    found = metrics(world.broker)
    lookups = {name: value for name, value in found.items() if name.startswith("lookups_total")}
    assert sum(lookups.values()) == 200
    assert lookups["lookups_totalcomplete"] + lookups["lookups_totalmissing"] <= answered
    assert min(lookups["lookups_totalcomplete"], lookups["lookups_totalmissing"]) > 5


def test_metrics_show_revision_and_age_of_the_view() -> None:
    world = BrokerWorld(3)
    world.walk(100)
    found, view = metrics(world.broker), world.broker._feed.view
    assert found["synced"] == 1
    assert found["revision"] == view.settled == world.broker.revision
    assert found["view_age_seconds"] == world.broker.age_s
    counts = found["segments_known"], found["segments_queryable"], found["segments_missing"]
    assert counts == view.counts()
    assert counts[0] > 0
    world.now += 7_000_000_000
    assert metrics(world.broker)["view_age_seconds"] >= 7


def test_broker_without_a_first_sync_has_no_age() -> None:
    found = metrics(SegmentBroker(Listeners(), BrokerWorld, BrokerWorld, float))  # type: ignore[arg-type]
    assert found["synced"] == found["revision"] == 0
    assert "view_age_seconds" not in found
    assert BrokerView().counts() == (0, 0, 0)
    assert list(broker_families(None)) == []
