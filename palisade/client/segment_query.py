"""Counts the rows of an interval: complete, or not at all (issue 17, S3).

A broker names the segments and their nodes; the nodes count. A segment's rows never change, so a count stays valid when
the segment moves. A node that does not answer, or no longer has a copy, costs one attempt: the next node is asked, then
the broker again, since a copy that moves is announced by its new node before it is removed. The sum is made over one
answer of the broker, and only if every segment in it was counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.wire.segment_errors import SegmentsUnavailable

log = logging.getLogger(__name__)

CONCURRENT = 8
PAUSE_S = 0.2

Lookup = Callable[[], Awaitable[Mapping[str, Any]]]
"""A broker's answer with on_missing=allow: `segments`, `missing`, `unserved`, `revision`."""
AskNode = Callable[[str, str], Awaitable[int]]
"""(node, segment) -> rows. Raises NodeFailed."""


class NodeFailed(PalisadeError):
    """The node did not answer, or does not have the segment."""

    code = "node-failed"
    retry = True


class CutSegment(PalisadeError):
    """The interval ends within a segment."""

    code = "bad-request"


@dataclass(frozen=True, slots=True)
class Counted:
    """As of `revision`. `segments`: how many were counted. `unserved`: those with replication factor 0, not counted.
    `attempts`: how often a broker was asked."""

    rows: int
    revision: int
    segments: int
    unserved: tuple[str, ...]
    attempts: int


async def count_rows(
    lookup: Lookup, ask: AskNode, *, attempts: int, rng: random.Random, pause: Callable[[float], Awaitable[None]]
) -> Counted:
    """Raises SegmentsUnavailable with the segments that no node could count, CutSegment, and the errors of `lookup`."""
    known: dict[str, int] = {}
    open_segments: list[str] = []
    for attempt in range(1, attempts + 1):
        found = await lookup()
        check_whole(found["segments"])
        await asyncio.gather(*(work(part_of, known, ask, rng) for part_of in shares(found["segments"], known)))
        uncounted = [each["segment"] for each in found["segments"] if each["segment"] not in known]
        open_segments = [*found["missing"], *uncounted]
        if not open_segments:
            rows = sum(known[each["segment"]] for each in found["segments"])
            return Counted(rows, found["revision"], len(found["segments"]), tuple(found["unserved"]), attempt)
        if attempt < attempts:
            await pause(PAUSE_S * attempt)
    raise SegmentsUnavailable(open_segments)


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
            except NodeFailed as error:
                log.debug("segment not counted: node=%s segment=%s error=%s", node, each["segment"], error)


def check_whole(segments: Sequence[Mapping[str, Any]]) -> None:
    """Raises CutSegment."""
    for each in segments:
        _, start, end, _, _ = each["segment"].split("/")
        if (each["from"], each["to"]) != (start, end):
            raise CutSegment(
                f"only {each['from']} to {each['to']} of segment {each['segment']} is asked for: count whole segments"
            )
