"""Lookups against an oracle that computes each answer from the committed rows alone (S1 to S3, issue 17)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import pytest

from palisade.catalog import publication
from palisade.catalog import timeline as timeline_module
from palisade.catalog.publication import Manifest
from palisade.catalog.segment import SegmentRecord
from palisade.catalog.timeline import ChunkIndex, Interval, Timeline, TimelineChunk, VisibleChunk
from palisade.catalog.timeline import _Members as Members
from palisade.metastore.requests import Put, Txn
from palisade.segments.broker import ViewFeed
from palisade.segments.broker_view import OnMissing
from palisade.vault.change import Item, VaultEvent
from palisade.wire.segment_errors import NoSuchDataSource
from tests.support import segment_oracle, segment_writer
from tests.support.segment_oracle import Expected, as_answered, expected, records_of
from tests.support.segment_writer import ALWAYS, DAY_MS, SOURCE, SegmentWriter

STEPS = 120
SEEDS = range(40)
EDGES = range(ALWAYS.start_ms, ALWAYS.end_ms + 1, DAY_MS // 2)


def test_oracle_imports_nothing_of_the_product() -> None:
    tree = ast.parse(Path(segment_oracle.__file__).read_text())
    imported = [each for each in ast.walk(tree) if isinstance(each, ast.Import | ast.ImportFrom)]
    assert not [each for each in imported if "palisade" in ast.unparse(each)]


class History:
    """Rows of a store, and a view that receives their changes."""

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.revision = 0
        self.feed = ViewFeed()

    def write(self, command: Txn) -> None:
        self.revision += 1
        for each in command.success:
            if isinstance(each, Put):
                self.rows[each.key] = each.value
                item = Item(each.key, each.value, self.revision, self.revision, 1, 0)
            else:
                self.rows.pop(each.key, None)
                item = None
            self.feed.change(VaultEvent(each.key, self.revision, item))
        self.feed.view.settle(self.revision)

    def check(self, interval: Interval) -> Expected | None:
        try:
            answer = self.feed.view.lookup(SOURCE, interval, OnMissing.ALLOW)
            found = as_answered(answer)
        except NoSuchDataSource:
            found = None
        wanted = expected(self.rows, SOURCE, *interval)
        assert found == wanted, f"revision {self.revision}, {interval}"
        if found is not None and interval == ALWAYS:
            self.check_growing(found)
        return wanted

    def check_growing(self, found: Expected) -> None:
        """Whatever is published or lost meanwhile, each segment that grows is in the answer once."""
        named = Counter([*(part.name for part in found.parts), *found.missing, *found.unserved])
        for name, record in records_of(self.rows, SOURCE).items():
            if segment_oracle.grows(record) and record["replicas"]:
                assert named[name] == 1, f"revision {self.revision}: {name} is {named[name]} times in {found}"


def check_all() -> dict[str, int]:
    """Returns how many lookups had parts, missing and unserved segments, and a version above the first."""
    seen = dict.fromkeys(("parts", "missing", "unserved", "newer", "cut", "realtime", "beside"), 0)
    for seed in SEEDS:
        history, writer = History(), SegmentWriter(Random(seed))
        for _ in range(STEPS):
            history.write(writer.command())
            answer = history.check(ALWAYS)
            for what in ("parts", "missing", "unserved"):
                seen[what] += bool(answer and getattr(answer, what))
            seen["newer"] += any(part.name.version > 1 for part in answer.parts) if answer else 0
            grown = [part for part in answer.parts if part.grows] if answer else []
            seen["realtime"] += bool(grown)
            seen["beside"] += any(part.name.partition for part in grown)
            seen["cut"] += any(part.name[1:3] != part[1:3] for part in answer.parts) if answer else 0
        for pair in combinations(EDGES, 2):
            history.check(Interval(*pair))
    return seen


def test_every_lookup_is_what_the_oracle_computes_from_the_rows() -> None:
    seen = check_all()
    assert all(count > 30 for count in seen.values()), seen


def without_core_partitions(members: Members, key: tuple[Interval, int]) -> TimelineChunk | None:
    """A chunk overshadows as soon as any partition is settled."""
    settled = tuple(each for _, each in sorted(members.segments.items()) if each.settled)
    return TimelineChunk(*key, settled) if settled else None


def first_half(members: Members, key: tuple[Interval, int]) -> TimelineChunk | None:
    """Half a replacement: the chunk is complete once the first half of its core partitions is."""
    core, members.core_partitions = members.core_partitions, (members.core_partitions + 1) // 2
    try:
        return as_chunk(members, key)
    finally:
        members.core_partitions = core


def core_only(members: Members, key: tuple[Interval, int]) -> TimelineChunk | None:
    found = as_chunk(members, key)
    return found and TimelineChunk(*key, found.segments[: members.core_partitions])


def half_redrawn(timeline: Timeline, interval: Interval) -> None:
    """Half a replacement: the second half of the interval keeps its old version."""
    middle = (interval.start_ms + interval.end_ms) // 2
    redraw(timeline, Interval(interval.start_ms, middle))


def any_newest(interval: Interval, chunks: list[TimelineChunk]) -> list[VisibleChunk]:
    """The newest version answers for the whole interval, also where it has no data."""
    newest = max(chunks, key=lambda chunk: chunk.version, default=None)
    return [] if newest is None else drawn(interval, [newest])


def any_oldest(interval: Interval, chunks: list[TimelineChunk]) -> list[VisibleChunk]:
    oldest = min((chunk.version for chunk in chunks), default=0)
    return drawn(interval, [chunk for chunk in chunks if chunk.version == oldest])


def equal_only(index: ChunkIndex, interval: Interval) -> Iterator[tuple[Interval, int]]:
    return (key for key in overlapping(index, interval) if key[0] == interval)


def nothing(*_: object) -> None:
    """Without the check: a newer version may hide a segment that grows."""


def every_generation(manifest: Manifest, record: SegmentRecord) -> bool:
    return record.generation <= manifest.last


as_chunk, redraw, drawn = Members.as_chunk, Timeline._redraw, timeline_module.drawn
overlapping = ChunkIndex.overlapping
FAULTS: dict[str, tuple[Any, str, Callable[..., object]]] = {
    "overshadowing ignores core partitions": (Members, "as_chunk", without_core_partitions),
    "half of the core partitions replaces": (Members, "as_chunk", first_half),
    "half of the interval is replaced": (Timeline, "_redraw", half_redrawn),
    "half of a publication is visible": (Manifest, "is_visible", every_generation),
    "appended partitions are left out": (Members, "as_chunk", core_only),
    "the newest version hides its neighbours": (timeline_module, "drawn", any_newest),
    "the oldest version answers": (timeline_module, "drawn", any_oldest),
    "a newer version hides rows that are received": (publication, "_check_growing", nothing),
    "a version is hidden while its rows are received": (segment_writer, "check_beside", nothing),
    "overlapping intervals are not found": (ChunkIndex, "overlapping", equal_only),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_oracle_sees_the_planted_fault(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises(AssertionError, match="revision"):
        check_all()
