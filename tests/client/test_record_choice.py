"""Commands and publications decode the records that they depend on, and no others (issue 17)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest

from palisade.catalog.errors import DamagedRow, NotAllowed
from palisade.catalog.publication import Manifest, PublicationPlan, plan
from palisade.catalog.segment import RECORDS, Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client import publishing
from palisade.client.publishing import changed, publish
from palisade.client.record_choice import everything, in_interval, named, overlapping
from palisade.client.segment_changes import mark_unused, reset_loaded, set_replicas
from palisade.metastore.requests import Put
from tests.segments.test_coordinator import Cluster

DAY_MS = 86_400_000
DAYS = 60
DAMAGED = RECORDS + b"flights/yesterday"


def record(start: int, end: int, version: int = 1) -> SegmentRecord:
    segment = Segment("flights", SegmentId(Interval(start * DAY_MS, end * DAY_MS), version, 0))
    return SegmentRecord(segment, 1, 10, 100, "sha256:" + f"{version}" * 64, replicas=1)


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The keys of the records that were decoded."""
    keys: list[bytes] = []
    from_bytes = SegmentRecord.from_bytes

    def noted(key: bytes, packed: bytes) -> SegmentRecord:
        keys.append(key)
        return from_bytes(key, packed)

    monkeypatch.setattr(SegmentRecord, "from_bytes", staticmethod(noted))
    return keys


@pytest.fixture
async def cluster() -> Cluster:
    """Sixty days, and one segment over all of them, of a lower version."""
    made = Cluster()
    await publish(made, "flights", [record(0, DAYS)])
    await publish(made, "flights", [record(day, day + 1, version=2) for day in range(DAYS)])
    return made


async def test_publication_decodes_only_the_records_that_overlap(cluster: Cluster, decoded: list[bytes]) -> None:
    assert await publish(cluster, "flights", [record(7, 8, version=3)]) == 1
    read = decoded.copy()
    assert sorted(set(read)) == [record(0, DAYS).segment.key, record(7, 8, version=2).segment.key]


async def test_publication_is_still_refused_for_a_long_segment_that_began_before(cluster: Cluster) -> None:
    await publish(cluster, "flights", [record(0, DAYS, version=5)])
    with pytest.raises(NotAllowed, match="version 5 is published for an overlapping interval"):
        await publish(cluster, "flights", [record(30, 31, version=3)])


async def test_changes_decode_only_the_chosen_records(cluster: Cluster, decoded: list[bytes]) -> None:
    one, other = record(3, 4, version=2).segment, record(9, 10, version=2).segment
    assert await set_replicas(cluster, "flights", 2, named([one])) == [one]
    assert await mark_unused(cluster, "flights", in_interval(other.id.interval)) == [other]
    read = set(decoded)
    assert read == {one.key, other.key}


async def test_record_with_a_key_of_another_form_is_not_passed_over(cluster: Cluster) -> None:
    cluster.driver.do(Put(DAMAGED, b"{}"))
    with pytest.raises(DamagedRow, match="yesterday"):
        await publish(cluster, "flights", [record(7, 8, version=3)])
    with pytest.raises(DamagedRow, match="yesterday"):
        await mark_unused(cluster, "flights", in_interval(Interval(0, DAY_MS)))


async def test_long_reads_give_other_tasks_a_turn(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[float] = []

    async def turn(seconds: float) -> None:
        turns.append(seconds)

    monkeypatch.setattr(publishing.asyncio, "sleep", turn)  # type: ignore[attr-defined]
    monkeypatch.setattr(publishing, "SLICE", 20)
    await reset_loaded(cluster, "flights")
    assert turns == [0] * (2 * (DAYS // 20))


def drawn(seed: int) -> tuple[Manifest, dict[Segment, SegmentRecord], list[SegmentRecord]]:
    """Records of random intervals, some of them unused or pending, and some to publish."""
    draw = Random(seed)

    def one(*versions: int) -> SegmentRecord:
        start = draw.randrange(10)
        return record(start, start + draw.choice([1, 1, 2, 10]), draw.choice(versions))

    present = [replace(one(1, 2, 3), used=draw.random() < 0.6, generation=draw.randrange(1, 4)) for _ in range(6)]
    return Manifest("flights", 3, (2,)), {each.segment: each for each in present}, [one(2, 3, 4, 5)]


def outcome(
    manifest: Manifest, present: dict[Segment, SegmentRecord], wanted: Sequence[SegmentRecord]
) -> PublicationPlan | str | None:
    records = changed(manifest, present, wanted)
    try:
        return plan(manifest, present, records) if records else None
    except NotAllowed as error:
        return str(error)


def check_plans(choice_of: Callable[[list[Interval]], Callable[[bytes], bool]]) -> None:
    refused = 0
    for seed in range(600):
        manifest, present, wanted = drawn(seed)
        choice = choice_of([each.segment.id.interval for each in wanted])
        some = {segment: found for segment, found in present.items() if choice(segment.key)}
        expected = outcome(manifest, present, wanted)
        assert outcome(manifest, some, wanted) == expected
        refused += isinstance(expected, str)
    assert 100 < refused < 500


def test_plan_of_the_overlapping_records_is_that_of_all() -> None:
    check_plans(overlapping)


def test_random_plans_see_long_segments_that_are_left_out() -> None:
    """As a read by start time alone would choose."""

    def by_start(intervals: list[Interval]) -> Callable[[bytes], bool]:
        starts = in_interval(Interval(min(intervals).start_ms, 100 * DAY_MS))
        return lambda key: starts(key) and overlapping(intervals)(key)

    with pytest.raises(AssertionError):
        check_plans(by_start)


def test_choice_of_everything_leaves_nothing_out() -> None:
    assert in_interval(None) is everything
    assert everything(DAMAGED)
