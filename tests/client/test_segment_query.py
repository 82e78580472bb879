"""A count is complete or refused, whatever nodes do meanwhile (issue 17, S3)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from palisade.catalog.timeline import Interval
from palisade.client import segment_query
from palisade.client.segment_query import CountFailed, CutSegment, ListCut, count_rows, lookup_all, not_loaded
from palisade.wire.segment_errors import SegmentsUnavailable
from tests.support.segment_names import name, segment

DAYS = range(1, 32)
ROWS = {name(day): 800 + day for day in DAYS}
TOTAL = sum(ROWS.values())
NODES = ("a", "b", "c")


class Fleet:
    """Segments that move at random between any two questions; each always has a node that has it and is announced."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.places = {segment: {self.rng.choice(NODES)} for segment in ROWS}
        self.dead: set[str] = set()
        self.revision = self.pauses = 0

    async def lookup(self) -> dict[str, Any]:
        self.revision += 1
        found = [
            {"segment": segment, "from": segment.split("/")[1], "to": segment.split("/")[2], "nodes": sorted(nodes)}
            for segment, nodes in self.places.items()
        ]
        return {
            "segments": [each for each in found if each["nodes"]],
            "missing": [each["segment"] for each in found if not each["nodes"]],
            "unserved": [],
            "loading": [],
            "rows": ROWS,
            "revision": self.revision,
        }

    async def ask(self, node: str, segment: str) -> int:
        if self.rng.random() < 0.3:
            moving = self.rng.choice(list(self.places))
            self.places[moving] = {self.rng.choice(NODES)}
        if node not in self.places[segment] or node in self.dead:
            raise CountFailed(node, "does not have it")
        return ROWS[segment]

    async def pause(self, seconds: float) -> None:
        self.pauses += 1

    async def count(self, attempts: int = 20) -> segment_query.Counted:
        return await count_rows(self.lookup, self.ask, attempts=attempts, rng=self.rng, pause=self.pause)


async def test_10000_segments_counted_while_they_move_are_each_counted_once() -> None:
    retried = 0
    for seed in range(10_000 // len(ROWS)):
        counted = await Fleet(seed).count()
        assert (counted.rows, counted.segments) == (TOTAL, len(ROWS))
        retried += counted.attempts > 1
    assert retried > 50


async def test_dead_node_costs_nothing_while_a_replica_is_up() -> None:
    fleet = Fleet(1)
    fleet.places = {segment: {"a", "b"} for segment in ROWS}
    fleet.rng = random.Random(2)
    fleet.dead = {"a"}

    async def ask(node: str, segment: str) -> int:
        if node in fleet.dead:
            raise CountFailed(node, "connection refused")
        return ROWS[segment]

    counted = await count_rows(fleet.lookup, ask, attempts=1, rng=fleet.rng, pause=fleet.pause)
    assert counted.rows == TOTAL


async def test_missing_and_failed_segments_are_listed_and_nothing_is_counted() -> None:
    fleet = Fleet(1)
    fleet.places = {segment: {"a"} for segment in ROWS}
    fleet.places[name(3)], fleet.places[name(9)] = set(), {"b"}

    async def ask(node: str, segment: str) -> int:
        if node == "b":
            raise CountFailed(node, "connection refused")
        return ROWS[segment]

    with pytest.raises(SegmentsUnavailable) as refused:
        await count_rows(fleet.lookup, ask, attempts=3, rng=fleet.rng, pause=fleet.pause)
    assert set(refused.value.missing) == {name(3), name(9)}
    assert fleet.pauses == 2


async def test_no_attempt_begins_after_the_time_of_the_count() -> None:
    """With a node that did not answer, `palisade query count --timeout 5` took up to 17 s (issue 16)."""
    fleet, asked = Fleet(1), []

    async def lookup() -> dict[str, Any]:
        asked.append(fleet.pauses)
        return {**await fleet.lookup(), "missing": [name(1)]}

    with pytest.raises(SegmentsUnavailable):
        await count_rows(
            lookup, fleet.ask, attempts=8, rng=fleet.rng, pause=fleet.pause, in_time=lambda: fleet.pauses < 3
        )
    assert asked == [0, 1, 2]


async def test_planted_sum_over_counted_segments_alone_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that fails must not shorten the answer."""

    async def work(segments: Any, known: dict[str, int], ask: Any, rng: Any) -> None:
        for each in segments:
            known[each["segment"]] = 0

    monkeypatch.setattr(segment_query, "work", work)
    assert (await Fleet(1).count()).rows != TOTAL


async def test_interval_within_a_segment_is_refused() -> None:
    fleet = Fleet(1)
    found = await fleet.lookup()
    found["segments"][0]["from"] = "2013-01-01T06:00:00.000Z"

    async def lookup() -> dict[str, Any]:
        return found

    with pytest.raises(CutSegment, match="only whole segments can be read: let the interval include 2013-01-01T00"):
        await count_rows(lookup, fleet.ask, attempts=1, rng=fleet.rng, pause=fleet.pause)


def part(segment: str) -> dict[str, Any]:
    return {"segment": segment, "from": segment.split("/")[1], "to": segment.split("/")[2], "nodes": ["a"]}


def test_published_segment_that_is_not_loaded_is_missing_from_a_count() -> None:
    """A count without it would be short."""
    start_ms, end_ms = segment(1).id.interval.start_ms, segment(9).id.interval.end_ms
    interval = Interval(start_ms, end_ms)
    found = {"segments": [part(name(1)), part(name(3))], "missing": [name(4)], "unserved": [name(5)]}
    newer = [name(day, version=2) for day in (1, 2, 4, 5)]
    listed = [{"segment": each, "state": "loading"} for each in (name(2), *newer, name(9), name(10))]
    listed.append({"segment": name(8), "state": "unused"})
    appended = [f"{name(day)[:-1]}7" for day in (1, 4, 5)]
    listed += [{"segment": each, "state": "loading"} for each in appended]
    listed.append({"segment": f"{name(1)[:-1]}8", "state": "served"})
    assert not_loaded(listed, found, interval) == [name(2), name(2, version=2), name(9), *appended]


async def test_count_waits_for_segments_that_are_loading() -> None:
    fleet, asked = Fleet(1), 0

    async def lookup() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {**await fleet.lookup(), "loading": [name(31)] if asked < 3 else []}

    counted = await count_rows(lookup, fleet.ask, attempts=20, rng=fleet.rng, pause=fleet.pause)
    assert counted.attempts >= 3
    assert counted.rows == TOTAL


async def test_count_that_differs_from_the_record_is_asked_of_the_next_node() -> None:
    """A node with a torn copy must not shorten the answer."""
    fleet = Fleet(1)
    fleet.places = {segment: {"a", "b"} for segment in ROWS}

    async def ask(node: str, segment: str) -> int:
        return 0 if node == "a" else ROWS[segment]

    counted = await count_rows(fleet.lookup, ask, attempts=1, rng=fleet.rng, pause=fleet.pause)
    assert counted.rows == TOTAL
    fleet.places[name(3)] = {"a"}
    with pytest.raises(SegmentsUnavailable) as refused:
        await count_rows(fleet.lookup, ask, attempts=1, rng=fleet.rng, pause=fleet.pause)
    assert refused.value.missing == (name(3),)


async def test_position_of_a_growing_segment_is_asked_again_by_the_next_attempt() -> None:
    """Between the attempts its ingester gets more rows and hands it off (segments 1 of tests/sim)."""
    grown, other = name(1), name(2)
    rows, down = {grown: 20, other: 7}, True

    async def lookup() -> dict[str, Any]:
        parts = [{**part(segment), "realtime": segment == grown and down} for segment in rows]
        recorded = {segment: each for segment, each in rows.items() if not (segment == grown and down)}
        return {"segments": parts, "missing": [], "unserved": [], "loading": [], "rows": recorded, "revision": 9}

    async def ask(node: str, segment: str) -> int:
        if segment == other and down:
            raise CountFailed(node, "is down")
        return rows[segment]

    async def pause(seconds: float) -> None:
        nonlocal down
        rows[grown], down = 30, False

    counted = await count_rows(lookup, ask, attempts=2, rng=random.Random(1), pause=pause)
    assert (counted.rows, counted.attempts, counted.realtime) == (37, 2, {})


class Lister:
    """A client whose broker lists one segment of `count`."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def segments_list(self, data_source: str, **limits: float) -> dict[str, Any]:
        self.limits = [limits]
        return {"count": self.count, "segments": [{"segment": name(1), "state": "served", "rows": 7}]}

    async def segments_lookup(
        self, data_source: str, start: str, end: str, on_missing: str, **limits: float
    ) -> dict[str, Any]:
        self.limits.append(limits)
        return {"segments": [part(name(1))], "missing": [], "unserved": [], "revision": 9}


async def test_count_over_a_list_that_is_cut_is_refused() -> None:
    """A segment that is not loaded yet could follow the end of the list."""
    where = ("flights", "2013-01-01", "2013-02-01")
    found = await lookup_all(Lister(1), *where)
    assert (found["loading"], found["rows"]) == ([], {name(1): 7})
    with pytest.raises(ListCut, match="2 segments, of which only 1 are listed"):
        await lookup_all(Lister(2), *where)


async def test_lookups_of_a_count_share_the_time_that_is_left() -> None:
    lister, left = Lister(1), iter([60.0, 20.0])
    await lookup_all(lister, "flights", "2013-01-01", "2013-02-01", lambda: next(left))
    assert lister.limits == [{"timeout_s": 60.0}, {"timeout_s": 20.0}]
