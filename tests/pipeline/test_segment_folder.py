"""Files of ingested segments: attempts of a task, crashes, sweeps (issue 18)."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from palisade.base.file_url import path_of_url
from palisade.catalog.parquet_rows import inspect_segment
from palisade.catalog.publication import Manifest
from palisade.catalog.replacement import replacement
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.pipeline import segment_folder
from palisade.pipeline.errors import BadOption
from palisade.pipeline.ingest import record_of
from palisade.pipeline.ingest_rows import DAY_MS, REASON, ROW, START
from palisade.pipeline.jobs.ingest import IngestOptions
from palisade.pipeline.segment_folder import SegmentFolder, folder_of, remove_file, write_file
from palisade.pipeline.segment_writing import SegmentWriter, WrittenFile

DAY = datetime(2013, 3, 1, tzinfo=UTC)
START_MS = int(DAY.timestamp() * 1000)


def rows(count: int, seed: int = 0) -> pa.Table:
    """In a random order, one of them twice."""
    found = [{"at": DAY + timedelta(minutes=number), "delay": number % 7} for number in range(count - 1)]
    found.append(found[0])
    Random(seed).shuffle(found)
    none = [{REASON: None, ROW: None, START: START_MS} for _ in found]
    return pa.Table.from_pylist([a | b for a, b in zip(found, none, strict=True)])


def written(folder: Path, table: pa.Table, rows_max: int = 1_000) -> list[WrittenFile]:
    writer = SegmentWriter(str(folder), ("at", "delay"), ("at", "delay"), rows_max)
    found = writer.write((pa.scalar(START_MS), pa.scalar(0)), table)
    return [WrittenFile(**each) for each in found.to_pylist()]


def test_attempts_with_rows_in_another_order_write_the_same_files(tmp_path: Path) -> None:
    first = written(tmp_path, rows(100), rows_max=40)
    assert written(tmp_path, rows(100, seed=1), rows_max=40) == first
    assert len(list(tmp_path.iterdir())) == 3
    assert [(each.partition, each.core_partitions, each.rows) for each in first] == [(0, 3, 34), (1, 3, 34), (2, 3, 32)]
    for each in first:
        content = inspect_segment(Path(path_of_url(each.url)).read_bytes())
        assert (content.rows, content.size_bytes, content.digest) == (each.rows, each.size_bytes, each.digest)


def test_rejected_rows_are_kept_with_their_reason(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([{REASON: f"x: {text} is not INT", ROW: text} for text in ("b", "ä")])
    writer = SegmentWriter(str(tmp_path), ("x",), ("x",), 10)
    (found,) = writer.write((pa.scalar(None, pa.int64()), pa.scalar(3)), table).to_pylist()
    lines = Path(path_of_url(found["url"])).read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["row"] for line in lines] == ["b", "ä"]
    assert (found["start_ms"], found["rows"]) == (None, 2)


def test_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(segment_folder.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_file(tmp_path / "run", "a.parquet", b"x" * 100)
    assert list((tmp_path / "run").iterdir()) == []


def test_sweep_deletes_what_no_record_names_and_keeps_later_runs_and_rejects(tmp_path: Path) -> None:
    folder = SegmentFolder(str(tmp_path / "c" / "flights"))
    urls = {
        (run, name): write_file(folder.run(run), name, b"x") for run in (3, 5, 9) for name in ("a.parquet", "b.parquet")
    }
    write_file(folder.run(3), "rejects-00000.jsonl", b"{}")
    write_file(folder.run(5), "input-flights.csv", b"x")
    (folder.run(3) / ".half.parquet.1").write_bytes(b"x")
    assert folder.sweep(5, {urls[3, "a.parquet"]}) == 3
    left = sorted(str(each.relative_to(folder.path)) for each in Path(folder.path).rglob("*") if each.is_file())
    assert left == [f"{3:016}/a.parquet", f"{3:016}/rejects-00000.jsonl", f"{9:016}/a.parquet", f"{9:016}/b.parquet"]
    assert not folder.run(5).exists()
    assert folder.has(urls[3, "a.parquet"])
    assert not folder.has(urls[3, "b.parquet"])
    assert not folder.has("file:///etc/hostname")
    assert remove_file(urls[3, "a.parquet"])
    assert not remove_file(urls[3, "a.parquet"])
    assert SegmentFolder(str(tmp_path / "none")).sweep(9, ()) == 0


@pytest.mark.parametrize("to", ["data", "s3://bucket/data", "file:data"])
def test_folder_must_be_absolute(to: str) -> None:
    with pytest.raises(BadOption, match="option to"):
        folder_of(to, "c1", "flights")
    with pytest.raises(BadOption, match="option to"):
        IngestOptions(to)  # Before Spark is started.
    assert folder_of("file:///data/", "c1", "flights") == folder_of("/data", "c1", "flights")


class Driver:
    """An ingest, step by step, in a store with the transaction of a publication. It may stop after each step."""

    def __init__(self, world: Ingests, content: int) -> None:
        self.world, self.content = world, content
        world.token += 1
        self.run = world.holder = world.token
        self.steps = [self.write, self.publish, self.sweep]
        self.files: list[WrittenFile] = []

    def write(self) -> None:
        self.files = written(self.world.folder.run(self.run), rows(4 + self.content), rows_max=4)

    def publish(self) -> None:
        world = self.world
        known = {each.url for each in world.records.values() if world.folder.has(each.url)}
        wanted = [record_of("flights", each, DAY_MS, {}) for each in self.files]
        found = replacement(
            world.manifest, world.records, wanted, lambda old, new: old.digest == new.digest and old.url in known
        )
        if world.holder == self.run or not world.compares_lock:
            world.records |= {each.segment: each for each in found}

    def sweep(self) -> None:
        self.world.folder.sweep(self.run, {each.url for each in self.world.records.values()})


class Ingests:
    """Drivers that take the lock, are paused, continue or die in any order. `compares_lock` False: planted."""

    def __init__(self, path: Path, seed: int, compares_lock: bool = True) -> None:
        self.folder, self.random, self.compares_lock = SegmentFolder(str(path)), Random(seed), compares_lock
        self.records: dict[Segment, SegmentRecord] = {}
        self.manifest = Manifest("flights", last=1)
        self.token = self.holder = 0

    def play(self) -> None:
        drivers: list[Driver] = []
        for _ in range(25):
            if not drivers or self.random.random() < 0.25:
                drivers.append(Driver(self, self.random.randrange(3)))
            driver = self.random.choice(drivers[-3:])
            if driver.steps:
                driver.steps.pop(0)()
            self.check()
        last = Driver(self, 2)
        while last.steps:
            last.steps.pop(0)()
        self.check()
        shown = max(each.segment.id.version for each in self.records.values())
        assert sum(each.rows for each in self.records.values() if each.segment.id.version == shown) == 6

    def check(self) -> None:
        for each in self.records.values():
            assert self.folder.has(each.url), "a published segment has lost its file"


def test_no_published_segment_loses_its_file_however_drivers_crash_and_pause(tmp_path: Path) -> None:
    for seed in range(40):
        Ingests(tmp_path / str(seed), seed).play()


def test_publication_without_the_lock_is_seen(tmp_path: Path) -> None:
    """Planted: a paused driver publishes files that a later run has swept."""
    lost = 0
    for seed in range(40):
        try:
            Ingests(tmp_path / str(seed), seed, compares_lock=False).play()
        except AssertionError:
            lost += 1
    assert lost > 5


def test_record_of_a_file_keeps_the_replication_factor(tmp_path: Path) -> None:
    (file,) = written(tmp_path, rows(4))
    record = record_of("flights", file, DAY_MS, {})
    assert record.replicas == 1
    again = record_of("flights", file, DAY_MS, {record.segment.id.interval: 3})
    assert again == replace(record, replicas=3)
