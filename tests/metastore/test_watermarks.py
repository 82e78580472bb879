"""Watermarks of archives hold automatic compaction back, up to a bound (issue 18)."""

from __future__ import annotations

import json

import pytest

from palisade.metastore.limits import Limits, Retention
from palisade.metastore.lineage import Lineage
from palisade.metastore.requests import Compact, DeleteRange, FoundCluster, Put
from palisade.metastore.watermarks import held, watermark_of, watermark_value
from tests.support.meta_driver import Driver

OURS = Lineage("c1", 1)
KEY = b"pipeline/watermarks/a1"
RETENTION = Retention(history_age_ms=10**12, history_revisions=100, hold_revisions=500, compaction_step_revisions=10)


def driver_with(watermark: int | None, limits: Limits | None = None, lineage: Lineage = OURS) -> Driver:
    driver = Driver(limits=limits, retention=RETENTION)
    driver.do(FoundCluster("c1"))
    if watermark is not None:
        driver.do(Put(KEY, watermark_value(watermark, lineage).encode()))
    return driver


def write_to(driver: Driver, revision: int) -> Driver:
    driver.all(*(Put(b"k", b"%d" % number) for number in range(revision - driver.store.revision)))
    assert driver.store.revision == revision
    return driver


def due(driver: Driver) -> list[object]:
    return list(driver.store.due_commands(driver.clock_ms))


def test_watermark_holds_retention_back_and_lets_it_follow() -> None:
    driver = write_to(driver_with(50), 300)
    assert due(driver) == [Compact(50)]
    driver.do(Compact(50))
    assert due(driver) == []
    driver.do(Put(KEY, watermark_value(180, OURS).encode()))
    assert due(driver) == [Compact(180)]


def test_watermark_holds_back_no_more_than_the_bound() -> None:
    driver = write_to(driver_with(50), 640)
    driver.do(Compact(50))
    assert due(driver) == []
    assert due(write_to(driver, 660)) == [Compact(60)]


@pytest.mark.parametrize("lineage", [Lineage("c1", 2), Lineage("c2", 1)])
def test_watermark_of_another_history_holds_nothing_back(lineage: Lineage) -> None:
    assert due(write_to(driver_with(50, lineage=lineage), 300)) == [Compact(200)]


def test_lowest_of_several_watermarks_counts_and_a_deleted_one_does_not() -> None:
    driver = driver_with(50)
    driver.do(Put(b"pipeline/watermarks/a2", watermark_value(20, OURS).encode()))
    write_to(driver, 300)
    assert due(driver) == [Compact(20)]
    driver.do(DeleteRange(b"pipeline/watermarks/a2"))
    assert due(driver) == [Compact(50)]


def test_watermark_gives_way_to_the_quota_and_to_an_explicit_compaction() -> None:
    driver = write_to(driver_with(50, Limits(quota_bytes=70_000)), 300)
    assert due(driver) == [Compact(200)]
    driver = write_to(driver_with(50), 300)
    assert driver.do(Compact(250)).minimal_revision == 250


@pytest.mark.parametrize(
    "value",
    [b"", b"7", b"{}", b"\xff", b'{"revision": "7", "cluster_id": "c1", "generation": 1}',
     b'{"revision": -1, "cluster_id": "c1", "generation": 1}', b"[" * 200_000,
     b'{"revision": true, "cluster_id": "c1", "generation": 1}'],
)  # fmt: skip
def test_malformed_watermark_holds_nothing_back(value: bytes) -> None:
    assert watermark_of(value, OURS) is None
    driver = driver_with(None)
    driver.do(Put(KEY, value))
    assert due(write_to(driver, 300)) == [Compact(200)]


def test_watermark_value_is_read_back() -> None:
    assert watermark_of(watermark_value(7, OURS).encode(), OURS) == 7
    assert json.loads(watermark_value(7, OURS)) == {"revision": 7, "cluster_id": "c1", "generation": 1}


@pytest.mark.parametrize(
    ("target", "floor", "watermark", "expected"),
    [(100, 0, None, 100), (100, 0, 40, 40), (100, 0, 200, 100), (100, 60, 40, 60), (100, 14, 4, 10), (5, 0, 2, 5)],
)
def test_held_target(target: int, floor: int, watermark: int | None, expected: int) -> None:
    assert held(target, 10, floor, 5, watermark) == expected
