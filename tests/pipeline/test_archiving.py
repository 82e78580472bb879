"""Steps of the job `history` against a model of store and folder: whatever step a run dies at, and whatever runs beside
it, the newest manifest is a complete archive, and the watermark never passes it (issue 18, P4)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from palisade.metastore.lineage import Lineage
from palisade.pipeline import archiving
from palisade.pipeline.archive_manifest import ArchiveManifest, ArchiveRefused, Superseded, decode, encode, pieces_at
from palisade.pipeline.archiving import (
    Archived,
    ListFolders,
    Look,
    Merge,
    Plan,
    Publish,
    RaiseWatermark,
    ReadManifests,
    Remove,
    Step,
    WriteBase,
    WriteChanges,
    WriteVersions,
    archive,
)
from palisade.pipeline.errors import RevisionGone
from palisade.pipeline.offsets import Here

KEEP_MS = 1_000_000
"""Longer than any run."""
Change = tuple[int, str, int | None]
"""(revision, key, value; None: deleted)"""
Version = tuple[str, int, int, int | None]
"""(key, value, from, to)"""


class Died(Exception):
    """The run ends between two steps."""


@dataclass
class World:
    """The store, whose history is all of `changes` above `minimal`, and the folder of one archive."""

    random: Random

    def __post_init__(self) -> None:
        self.lineage = Lineage("c", 1)
        self.changes: list[Change] = []
        self.minimal = 1
        self.watermark = (0, 0)
        self.now_ms = 0
        self.folders: dict[str, list[Any]] = {}
        self.stored: dict[int, bytes] = {}
        self.names = self.others = 0

    # The store.

    @property
    def revision(self) -> int:
        return self.changes[-1][0] if self.changes else 1

    def write(self, key: str, value: int | None) -> int:
        self.changes.append((self.revision + 1, key, value))
        return self.revision

    def busy(self) -> None:
        for _ in range(self.random.randrange(6)):
            dead = self.random.random() < 0.3
            self.write(self.random.choice("abc"), None if dead else self.random.randrange(100))

    def compact_as_held(self) -> None:
        """Automatic compaction goes as far as the watermark permits."""
        held = self.watermark[0] or self.revision
        self.minimal = max(self.minimal, min(self.revision, held))

    def state(self, revision: int) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for at, key, value in self.changes:
            if at <= revision:
                found.pop(key, None)
                if value is not None:
                    found[key] = (value, at)
        return found

    # A run.

    def plan(self, merge_rows: int = 8) -> Plan:
        def name() -> str:
            self.names += 1
            return f"n{self.names}"

        return Plan(4, merge_rows, KEEP_MS, name, lambda: self.now_ms)

    def run(self, steps: archiving.Steps, dies_at: int = -1, beside: Any = None) -> Archived:
        answer, count = None, 0
        try:
            while True:
                step = steps.send(answer)
                if count == dies_at:
                    raise Died
                if beside is not None:
                    beside()
                answer = self.do(step)
                count += 1
                self.check()
        except StopIteration as end:
            found: Archived = end.value
            return found

    def do(self, step: Step) -> Any:
        self.now_ms += self.random.randrange(400)
        match step:
            case Look():
                return Here(self.revision, self.minimal, self.lineage)
            case ReadManifests():
                return [decode(self.stored[number], "manifest") for number in sorted(self.stored)]
            case Publish(manifest):
                assert manifest.folders() <= self.folders.keys(), "a manifest names what is not written"
                if max(self.stored, default=0) >= manifest.number:
                    return False
                self.stored[manifest.number] = encode(manifest)
                return True
            case RaiseWatermark(_, revision):
                if self.watermark[0] < revision:
                    self.watermark = (revision, self.write("watermark", revision))
                return self.watermark[1]
            case ListFolders():
                return sorted(self.folders)
            case Remove(folders, manifests):
                for number in manifests:
                    self.stored.pop(number, None)
                for folder in folders:
                    self.folders.pop(folder, None)
                return None
        return self.written(step)

    def written(self, step: Step) -> Any:
        match step:
            case WriteBase(revision, folder):
                assert revision >= self.minimal, "a state that is compacted cannot be read"
                self.folders[folder] = [(key, value, at, None) for key, (value, at) in self.state(revision).items()]
                return len(self.folders[folder])
            case WriteChanges(first, last, folder):
                if first < self.minimal:
                    raise RevisionGone("the changes are compacted")
                self.folders[folder] = [each for each in self.changes if first <= each[0] <= last]
                return len(self.folders[folder])
            case WriteVersions(current, changes, ended, valid):
                live = {each[0]: each for each in self.folders[current]} if current else {}
                over: list[Version] = []
                for at, key, value in self.folders[changes]:
                    if key in live:
                        over.append((*live.pop(key)[:3], at))
                    if value is not None:
                        live[key] = (key, value, at, None)
                self.folders[ended], self.folders[valid] = over, list(live.values())
                return len(over), len(live)
            case Merge(folders, folder):
                self.folders[folder] = [row for each in folders for row in self.folders[each]]
                return None
        raise TypeError(step)

    # What must hold at any time.

    def newest(self) -> ArchiveManifest | None:
        return decode(self.stored[max(self.stored)], "manifest") if self.stored else None

    def check(self) -> None:
        manifest = self.newest()
        if manifest is None or manifest.last is None:
            return
        assert self.watermark[0] <= manifest.last, "the watermark has passed the archive"
        archived = [row for piece in manifest.changes for row in self.folders[piece.folder]]
        assert archived == [each for each in self.changes if manifest.base < each[0] <= manifest.last]
        for revision in range(manifest.base, manifest.last + 1):
            rows = [row for folder in pieces_at(manifest, revision) for row in self.folders[folder]]
            valid = [row for row in rows if row[2] <= revision and (row[3] is None or row[3] > revision)]
            assert {key: (value, at) for key, value, at, _ in valid} == self.state(revision), revision
            assert len(valid) == len({row[0] for row in valid})


def schedule(seed: int) -> World:
    random = Random(seed)
    world = World(random)
    for _ in range(12):
        world.busy()
        world.compact_as_held()
        world.now_ms += random.randrange(2 * KEEP_MS)
        dies_at = random.choice((-1, random.randrange(14)))

        def beside() -> None:
            if random.random() < 0.2:
                world.write(random.choice("abc"), random.randrange(100))
            world.compact_as_held()
            if random.random() < 0.03:
                with_errors_ignored(world)

        others = world.others
        try:
            world.run(archive(world.plan(random.choice((0, 8)))), dies_at, beside)
        except RevisionGone:
            assert world.others > others, "compaction has passed the archive, and no other run extended it"
        except (Died, Superseded):
            pass
        world.check()
    world.run(archive(world.plan()))
    world.check()
    return world


def schedules(count: int) -> None:
    for seed in range(count):
        schedule(seed)


def with_errors_ignored(world: World) -> None:
    """Another run at the same time."""
    world.others += 1
    with suppress(Died, Superseded):
        world.run(archive(world.plan(0)), world.random.randrange(14))


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_archive_is_whole_after_any_crash_and_beside_other_runs(first: int) -> None:
    for seed in range(first, first + 40):
        world = schedule(seed)
        manifest = world.newest()
        assert manifest is not None
        assert manifest.last is not None
        left = {key for at, key, _ in world.changes if at > manifest.last}
        assert left <= {"watermark"}


def test_run_after_an_explicit_compaction_beyond_the_archive_is_refused() -> None:
    world = World(Random(1))
    world.busy()
    world.run(archive(world.plan()))
    for number in range(5):
        world.write("a", number)
    world.minimal = world.revision
    with pytest.raises(RevisionGone, match="were compacted before they were archived"):
        world.run(archive(world.plan()))


@pytest.mark.parametrize("other", [Lineage("c", 2), Lineage("d", 1)])
def test_archive_of_another_history_is_refused(other: Lineage) -> None:
    world = World(Random(1))
    world.busy()
    world.run(archive(world.plan()))
    world.lineage = other
    with pytest.raises(ArchiveRefused, match="archive into an empty folder"):
        world.run(archive(world.plan()))


def test_planted_watermark_before_the_manifest_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash between both would let compaction remove what no archive has."""
    extend = archiving._extend

    def planted(plan: Plan, manifest: ArchiveManifest, first: int, last: int) -> Any:
        yield RaiseWatermark(manifest, last)
        return (yield from extend(plan, manifest, first, last))

    monkeypatch.setattr(archiving, "_extend", planted)
    with pytest.raises(AssertionError):
        schedules(40)


def test_planted_removal_of_all_older_files_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run beside it loses the folders that it has just written."""
    garbage = archiving.garbage
    monkeypatch.setattr(
        archiving, "garbage", lambda manifests, folders, now_ms, _: garbage(manifests, folders, now_ms, 0)
    )
    with pytest.raises(AssertionError):
        schedules(200)
