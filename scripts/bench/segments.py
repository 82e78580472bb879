"""The cost of lookups of segments and of changes of the broker's view (issue 17, "How fast").

    scripts/bench/run segments [--part P]... [--segments N] [--rounds N] [--changes N] [--data-dir D]

Parts, all of them by default:

view     In one process, with N segments of one data source: a lookup that returns 31 of them, one change of a record,
         and announcements, as they come from the change feed.
visible  On a cluster of three: from the request of a change until the lookups of every node show it.

Exit codes: 0 every threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from harness.figures import Line, Threshold, all_pass, alone
from harness.palisade import Palisade
from harness.report import show
from harness.system import NotReady
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client import Client
from palisade.segments.broker import ViewFeed
from palisade.vault.change import Item, VaultEvent

HOUR_MS = 3_600_000
SOURCE = "events"
DIGEST = "sha256:" + "0" * 64
LOOKUPS, SPAN = 2_000, 31
PARTS = ("view", "visible")


def segment(number: int) -> Segment:
    return Segment(SOURCE, SegmentId(Interval(number * HOUR_MS, (number + 1) * HOUR_MS), 1, 0))


def record(number: int, *, loaded: bool = True) -> SegmentRecord:
    return SegmentRecord(segment(number), 1, 10, 100, DIGEST, 1, loaded=loaded)


def put(key: bytes, value: bytes, revision: int) -> VaultEvent:
    return VaultEvent(key, revision, Item(key, value, revision, revision, 1, 0))


def us_each(count: int, work: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for number in range(count):
        work(number)
    return (time.perf_counter() - began) / count * 1e6


def view_round(segments: int, changes: int) -> tuple[float, float, float]:
    """us per lookup, us per change of a record, announcements per second."""
    feed = ViewFeed()
    manifest = Manifest(SOURCE).with_visible()
    feed.change(put(manifest.key, manifest.to_bytes(), 2))
    for number in range(segments):
        feed.change(put(segment(number).key, record(number).to_bytes(), 3))
    feed.view.settle(3)
    announced = [put(segment(number).announcement_key("n1"), b"", 4) for number in range(segments)]
    announcing_us = us_each(segments, lambda number: feed.change(announced[number]))
    feed.view.settle(4)
    step = max(1, (segments - SPAN) // LOOKUPS)
    spans = [Interval(number * step * HOUR_MS, (number * step + SPAN) * HOUR_MS) for number in range(LOOKUPS)]
    lookup_us = us_each(LOOKUPS, lambda number: feed.view.lookup(SOURCE, spans[number]))

    def change(number: int) -> None:
        chosen, revision = number * 7919 % segments, 5 + number
        feed.change(put(segment(chosen).key, record(chosen, loaded=bool(number % 2)).to_bytes(), revision))
        feed.view.settle(revision)

    return lookup_us, us_each(changes, change), 1e6 / announcing_us


def view_lines(options: argparse.Namespace) -> list[Line]:
    rounds = [view_round(options.segments, options.changes) for _ in range(options.rounds)]
    lookup_us, change_us, per_s = (statistics.median(column) for column in zip(*rounds, strict=True))
    return [
        alone(f"lookup of {SPAN} in {options.segments:,} segments", "us", lookup_us, Threshold(at_most=50)),
        alone("one change of a record", "us", change_us, Threshold(at_most=200)),
        alone("announcements", "1/s", per_s, Threshold(at_least=10_000)),
    ]


async def visible_lines(options: argparse.Namespace) -> list[Line]:
    with tempfile.TemporaryDirectory(dir=options.data_dir) as folder:
        async with AsyncExitStack() as stack:
            cluster = await stack.enter_async_context(Palisade(Path(folder) / "cluster"))
            streams = cluster.streams
            nodes = [await stack.enter_async_context(Client([each], follow_leader=False)) for each in streams]
            day = {"from": "2013-01-01", "to": "2013-01-02", "rows": 1, "size_bytes": 1, "digest": DIGEST}
            await nodes[0].segments_publish(SOURCE, [day])
            took_ms = sorted([await changed_ms(nodes, number % 2) for number in range(options.changes)])
    p99 = took_ms[min(len(took_ms) - 1, len(took_ms) * 99 // 100)]
    return [
        alone("change visible at every broker, p50", "ms", statistics.median(took_ms), Threshold()),
        alone("change visible at every broker, p99", "ms", p99, Threshold(at_most=100)),
    ]


async def changed_ms(nodes: list[Client], replicas: int) -> float:
    began = time.perf_counter()
    await nodes[0].segments_set_replicas(SOURCE, replicas)

    async def shown(node: Client) -> None:
        while len((await node.segments_lookup(SOURCE, "2013-01-01", "2013-01-02"))["unserved"]) == replicas:  # noqa: ASYNC110
            await asyncio.sleep(0)

    await asyncio.gather(*map(shown, nodes))
    return (time.perf_counter() - began) * 1e3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--segments", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--data-dir", type=Path)
    options = parser.parse_args()
    lines: list[Line] = []
    try:
        for part in options.part or PARTS:
            found = view_lines(options) if part == "view" else asyncio.run(visible_lines(options))
            show(part, found)
            lines += found
    except NotReady as error:
        print(error, file=sys.stderr)
        return 2
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
