"""Copies as files: what is read is whole, whatever the disk, a crash or a person has done (R5).

On the simulated disk with a crash at each step, and the same on a real folder without crashes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palisade.segments.disk import FolderDisk
from palisade.segments.segment_store import INCOMING, SegmentStore, file_of
from palisade.segments.verification import version_of
from palisade.wire.segment_errors import NoSuchSegment, NotFetched, NotRemoved
from tests.support.recovery_world import Crash, Steps
from tests.support.segment_names import name
from tests.support.segment_world import Files, SimulatedDisk

DAY, OTHER = name(1), name(2, "weather")
OLD, NEW = b"old rows\x1e" * 10, b"new rows, more of them\x1e" * 10


@pytest.fixture(params=["memory", "folder"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return SimulatedDisk(Files()) if request.param == "memory" else FolderDisk(tmp_path / "segments")


async def put(segment_store: SegmentStore, found: str, content: bytes) -> None:
    await segment_store.put(found, version_of(content), content)


async def test_stored_segment_survives_a_restart(disk: Any) -> None:
    """Both disks: what each of them promises is the same."""
    first = SegmentStore(disk)
    await first.scan()
    assert first.held == {}
    await put(first, DAY, OLD)
    await put(first, DAY, NEW)
    await put(first, OTHER, OLD)
    await first.drop(OTHER)
    await first.drop(name(31))
    second = SegmentStore(disk)
    await second.scan()
    assert second.held == first.held == {DAY: version_of(NEW)}
    assert await second.read(DAY) == (NEW, version_of(NEW))
    assert await disk.names() == [file_of(DAY)]
    with pytest.raises(FileNotFoundError):
        await disk.read(file_of(OTHER), 10)


async def test_read_of_another_version_is_rejected(disk: Any) -> None:
    segment_store = SegmentStore(disk)
    await put(segment_store, DAY, OLD)
    with pytest.raises(NoSuchSegment):
        await segment_store.read(DAY, version_of(NEW).digest)
    with pytest.raises(NoSuchSegment):
        await segment_store.read(OTHER)


@pytest.mark.parametrize("damaged", [b"", OLD[:-1], OLD + b"x", b"X" + OLD[1:]])
async def test_damaged_file_is_never_served_and_has_no_version(disk: Any, damaged: bytes) -> None:
    """Found by a start, and found by a reader before the next start."""
    segment_store = SegmentStore(disk)
    await put(segment_store, DAY, OLD)
    await disk.write(file_of(DAY), damaged)
    with pytest.raises(NoSuchSegment, match="damaged"):
        await segment_store.read(DAY)
    assert not segment_store.has(DAY, version_of(OLD).digest)
    assert segment_store.versions() == {DAY: ""}
    again = SegmentStore(disk)
    await again.scan()
    assert again.versions()[DAY] != version_of(OLD).digest


async def test_foreign_file_is_ignored(disk: Any) -> None:
    await disk.write("notes.txt", b"mine")
    segment_store = SegmentStore(disk)
    await segment_store.scan()
    assert segment_store.held == {}
    assert await disk.names() == ["notes.txt"]


async def test_full_disk_keeps_the_old_version() -> None:
    """scenarios.md: a full disk during a snapshot; the same for what is held beside the vault."""
    files = Files()
    segment_store = SegmentStore(SimulatedDisk(files))
    await put(segment_store, DAY, OLD)
    files.room_bytes = len(OLD) + 10
    with pytest.raises(NotFetched, match="no space left") as refused:
        await put(segment_store, OTHER, NEW)
    assert refused.value.retry
    assert files.content == {file_of(DAY): OLD}
    assert (await segment_store.read(DAY))[0] == OLD


async def test_read_only_disk_with_a_leftover_of_a_crash_is_scanned_and_served() -> None:
    files = Files()
    await put(SegmentStore(SimulatedDisk(files)), DAY, OLD)
    files.content[f"{INCOMING}7-x"] = b"half"
    files.read_only = True
    segment_store = SegmentStore(SimulatedDisk(files))
    await segment_store.scan()
    assert (await segment_store.read(DAY))[0] == OLD
    with pytest.raises(NotFetched, match="the write failed: read-only file system") as refused:
        await put(segment_store, OTHER, NEW)
    assert refused.value.retry


async def test_segment_that_cannot_be_removed_is_not_served() -> None:
    files = Files()
    segment_store = SegmentStore(SimulatedDisk(files))
    await put(segment_store, DAY, OLD)
    files.stubborn.add(file_of(DAY))
    with pytest.raises(NotRemoved):
        await segment_store.drop(DAY)
    with pytest.raises(NoSuchSegment):
        await segment_store.read(DAY)
    assert DAY in segment_store.versions()


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_crash_at_any_step_leaves_a_complete_version(after: bool) -> None:
    steps_seen = set()
    for step in range(1, 5):
        files = Files()
        await put(SegmentStore(SimulatedDisk(files)), DAY, OLD)
        steps = Steps(step, after=after)
        segment_store = SegmentStore(SimulatedDisk(files, steps))
        await segment_store.scan()
        try:
            await put(segment_store, DAY, NEW)
            await segment_store.drop(DAY)
        except Crash:
            steps_seen.add(steps.names[-1])
        again = SegmentStore(SimulatedDisk(files))
        await again.scan()
        assert again.held.get(DAY) in (None, version_of(OLD), version_of(NEW))
        assert set(files.content) <= {file_of(DAY)}, "a half one stays"
    assert steps_seen == {"write", "rename", "remove"}
