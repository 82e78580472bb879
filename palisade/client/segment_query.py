"""Counts the rows of an interval: complete, or not at all (issue 17, S3).

A broker names the segments and their nodes; the nodes count. A segment's rows never change, so a count stays valid when
the segment moves. A node that does not answer, or no longer has a copy, costs one attempt: the next node is asked, then
the broker again, since a copy that moves is announced by its new node before it is removed. A number of rows that
differs from the segment's record also costs an attempt. The sum is made over one answer of the broker, and only if
every segment in it was counted.

A realtime segment that grows is counted by its ingester, which answers with its row position: every row that it had
acknowledged before the count began, and each row once. The result names these positions. The next attempt asks for it
again, since it may be published by then, with more rows.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from palisade.base.counted import counted
from palisade.base.errors import PalisadeError
from palisade.catalog.segment import parse_segment, time_ms
from palisade.catalog.segment_json import interval_of
from palisade.catalog.timeline import Interval
from palisade.wire.segment_errors import SegmentsUnavailable

log = logging.getLogger(__name__)

CONCURRENT = 8
PAUSE_S, PAUSE_S_MAX = 0.2, 1.0

Lookup = Callable[[], Awaitable[Mapping[str, Any]]]
"""A broker's answer with on_missing=allow: `segments`, `missing`, `unserved`, `revision`; and `loading`, the published
segments that were not loaded yet (`not_loaded`), `rows`, the number of rows by segment in the known records, but of
those that grow, and these `records`."""
AskNode = Callable[[str, str], Awaitable[int]]
"""(node, segment) -> rows. Raises CountFailed."""


class CountFailed(PalisadeError):
    """The node did not answer, or does not have the segment. `reason`: without the name of the node."""

    code = "node-failed"
    retry = True

    def __init__(self, node: str, reason: str) -> None:
        super().__init__(f"{node}: {reason}")
        self.node, self.reason = node, reason


class ListCut(PalisadeError):
    """The data source has more segments than a broker lists."""

    code = "segments-list-cut"


class CutSegment(PalisadeError):
    """The interval ends within a segment."""

    code = "bad-request"


@dataclass(frozen=True, slots=True)
class Counted:
    """As of `revision`. `segments`: how many were counted. `unserved`: those with replication factor 0, not counted.
    `attempts`: how often a broker was asked. `realtime`: the row positions of the segments that grow."""

    rows: int
    revision: int
    segments: int
    unserved: tuple[str, ...]
    attempts: int
    realtime: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class CountProgress:
    """What a count waits for at the moment. `records`: of the last answer of a broker. `missing`, `loading`: what that
    answer lacked. `asked`: segment -> the node that is asked. `failed`: segment -> why the last node did not count it.
    """

    records: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    missing: Sequence[str] = ()
    loading: Sequence[str] = ()
    asked: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def answered(self, found: Mapping[str, Any]) -> None:
        self.records, self.missing, self.loading = found.get("records", {}), found["missing"], found["loading"]

    def asking(self, ask: AskNode) -> AskNode:
        """`ask`, which is noted here."""

        async def noted(node: str, segment: str) -> int:
            self.asked[segment] = node
            try:
                rows = await ask(node, segment)
            except CountFailed as error:
                self.failed[segment] = str(error)
                raise
            finally:
                del self.asked[segment]
            self.failed.pop(segment, None)
            return rows

        return noted


async def count_rows(
    lookup: Lookup,
    ask: AskNode,
    *,
    attempts: int | None,
    rng: random.Random,
    pause: Callable[[float], Awaitable[None]],
    progress: CountProgress | None = None,
    in_time: Callable[[], bool] = lambda: True,
) -> Counted:
    """`attempts`: their maximum number; None: no maximum. `in_time`: returns whether another attempt may begin.
    `progress`: kept up to date meanwhile.

    Raises SegmentsUnavailable with the segments that no node could count, CutSegment, and the errors of `lookup`.
    """
    known: dict[str, int] = {}
    progress = progress or CountProgress()
    open_segments: list[str] = []
    for attempt in count(1):
        found = await lookup()
        check_whole(found["segments"])
        progress.answered(found)
        checked = progress.asking(checking(ask, found["rows"]))
        await asyncio.gather(*(work(part_of, known, checked, rng) for part_of in shares(found["segments"], known)))
        uncounted = [each["segment"] for each in found["segments"] if each["segment"] not in known]
        open_segments = [*found["missing"], *found["loading"], *uncounted]
        if not open_segments:
            rows = sum(known[each["segment"]] for each in found["segments"])
            growing = {each["segment"]: known[each["segment"]] for each in found["segments"] if each.get("realtime")}
            return Counted(rows, found["revision"], len(found["segments"]), tuple(found["unserved"]), attempt, growing)
        known = unchanging(known, found["rows"])
        if attempt != attempts:
            await pause(min(PAUSE_S * attempt, PAUSE_S_MAX))
        if attempt == attempts or not in_time():
            break
    raise SegmentsUnavailable(open_segments)


def unchanging(known: Mapping[str, int], recorded: Mapping[str, int]) -> dict[str, int]:
    """Of the counted segments those that are published: the others may get rows until the next attempt."""
    return {segment: rows for segment, rows in known.items() if recorded.get(segment) == rows}


def checking(ask: AskNode, recorded: Mapping[str, int]) -> AskNode:
    """`ask`, which fails with another number of rows than the recorded one."""

    async def checked(node: str, segment: str) -> int:
        rows = await ask(node, segment)
        if rows != recorded.get(segment, rows):
            raise CountFailed(
                node, f"counted {counted(rows, 'row')} of segment {segment}, its record has {recorded[segment]}"
            )
        return rows

    return checked


async def lookup_all(
    client: Any, data_source: str, start: str, end: str, left_s: Callable[[], float] | None = None
) -> dict[str, Any]:
    """A `Lookup` of `palisade.Client`. The list is read first: a segment that is loaded after it is in the answer.
    `left_s`: the time that is left; None: each request has the timeout of the client.

    Raises ListCut.
    """
    interval = interval_of(start, end)
    listed = await client.segments_list(data_source, **limited(left_s))
    if listed["count"] > len(listed["segments"]):
        raise ListCut(
            f"data source {data_source} has {counted(listed['count'], 'segment')}, of which only "
            f"{len(listed['segments'])} are listed, so a count could lack a segment that is not loaded yet: publish to "
            "several data sources"
        )
    found: dict[str, Any] = await client.segments_lookup(data_source, start, end, on_missing="allow", **limited(left_s))
    rows = {each["segment"]: each["rows"] for each in listed["segments"] if not each.get("ingester") or each["digest"]}
    records = {each["segment"]: each for each in listed["segments"]}
    return {**found, "loading": not_loaded(listed["segments"], found, interval), "rows": rows, "records": records}


def limited(left_s: Callable[[], float] | None) -> dict[str, float]:
    """Keyword arguments with the timeout of a request: none without a limit."""
    return {} if left_s is None else {"timeout_s": left_s()}


def not_loaded(listed: Iterable[Mapping[str, Any]], found: Mapping[str, Any], interval: Interval) -> list[str]:
    """The segments that are published and not loaded yet, for times that no segment in the answer stands for, or in the
    interval and version of a segment in the answer, as a partition that was appended.

    A lookup does not count on them, but a count without them would be short.
    """
    answered = [*(each["segment"] for each in found["segments"]), *found["missing"], *found["unserved"]]
    chunks = {chunk_of(name) for name in answered}
    whole = [parse_segment(name).id.interval for name in (*found["missing"], *found["unserved"])]
    parts = [Interval(time_ms(each["from"]), time_ms(each["to"])) for each in found["segments"]]
    covered = sorted([*whole, *parts])
    names = [each["segment"] for each in listed if each["state"] == "loading"]
    return [
        name
        for name in names
        if chunk_of(name) in chunks or has_gap(cut(parse_segment(name).id.interval, interval), covered)
    ]


def chunk_of(name: str) -> str:
    """The name without its partition."""
    return name.rpartition("/")[0]


def cut(one: Interval, other: Interval) -> Interval:
    return Interval(max(one.start_ms, other.start_ms), min(one.end_ms, other.end_ms))


def has_gap(interval: Interval, covered: Iterable[Interval]) -> bool:
    """Whether a time of the interval is in none of `covered`, which is sorted."""
    reached_ms = interval.start_ms
    for start_ms, end_ms in covered:
        if start_ms > reached_ms:
            break
        reached_ms = max(reached_ms, end_ms)
    return reached_ms < interval.end_ms


def shares(segments: Sequence[Mapping[str, Any]], known: Mapping[str, int]) -> list[list[Mapping[str, Any]]]:
    """The segments to count, divided among concurrent workers."""
    rest = [each for each in segments if each["segment"] not in known]
    return [rest[start::CONCURRENT] for start in range(min(CONCURRENT, len(rest)))]


async def work(segments: Sequence[Mapping[str, Any]], known: dict[str, int], ask: AskNode, rng: random.Random) -> None:
    for each in segments:
        nodes = list(each["nodes"])
        rng.shuffle(nodes)
        for node in nodes:
            try:
                known[each["segment"]] = await ask(node, each["segment"])
                break
            except CountFailed as error:
                log.debug("segment not counted: node=%s segment=%s error=%s", error.node, each["segment"], error.reason)


def check_whole(segments: Sequence[Mapping[str, Any]]) -> None:
    """Raises CutSegment."""
    for each in segments:
        _, start, end, _, _ = each["segment"].split("/")
        if (each["from"], each["to"]) != (start, end):
            raise CutSegment(
                f"segment {each['segment']} lies only partly in the interval, from {each['from']} to {each['to']}, and "
                f"only whole segments can be read: let the interval include {start} to {end}, or none of it"
            )
