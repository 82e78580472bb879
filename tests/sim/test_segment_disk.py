"""What the simulated disk of a data node keeps over a kill and over a loss of power."""

from __future__ import annotations

import errno

import pytest

from palisade.catalog.realtime_rows import columns_from
from palisade.segments.realtime_log import LogHeader, RealtimeLog
from tests.sim.disk import Disk
from tests.sim.segment_disk import SimRealtimeFolder, SimSegmentFiles
from tests.support.segment_names import segment
from tests.support.simulation import Simulation

HEADER = LogHeader(segment(1), columns_from({"id": "int"}))
SEEDS = range(60)


async def test_killed_process_loses_nothing_that_the_system_has() -> None:
    disk = Disk(Simulation(1), "n1")
    await SimSegmentFiles(disk.segments).write("a", b"12345")
    disk.killed(power=False)
    assert disk.segments.files == {"a": b"12345"}


async def disk_with(seed: int, **synced: bytes) -> tuple[Disk, SimSegmentFiles]:
    disk = Disk(Simulation(seed), "n1")
    files = SimSegmentFiles(disk.segments)
    for name, content in synced.items():
        await files.write(name, content)
        await files.sync(name)
    return disk, files


async def test_loss_of_power_keeps_synced_files_and_loses_or_tears_others() -> None:
    found: set[bytes | None] = set()
    for seed in SEEDS:
        disk, files = await disk_with(seed, kept=b"12345")
        await files.write("a", b"67890")
        disk.lose_power()
        assert disk.segments.files["kept"] == b"12345"
        found.add(disk.segments.files.get("a"))
    assert {None, b"67890"} < found


async def test_renamed_file_is_the_old_or_the_new_one_after_a_loss_of_power_and_whole_if_it_was_synced() -> None:
    found = set()
    for seed in SEEDS:
        disk, files = await disk_with(seed, a=b"old")
        await files.write(".incoming", b"new")
        await files.sync(".incoming")
        await files.rename(".incoming", "a")
        disk.lose_power()
        found.add(disk.segments.files["a"])
    assert found == {b"old", b"new"}


async def test_removed_file_may_be_there_again_after_a_loss_of_power() -> None:
    found = set()
    for seed in SEEDS:
        disk, files = await disk_with(seed, a=b"1")
        await files.remove("a")
        disk.lose_power()
        found.add(disk.segments.files.get("a"))
    assert found == {None, b"1"}


async def test_log_keeps_its_synced_rows_over_a_loss_of_power() -> None:
    for seed in SEEDS:
        disk = Disk(Simulation(seed), "n1")
        folder = SimRealtimeFolder(disk.segments)
        log = await RealtimeLog.create(folder.files("x"), HEADER)
        await log.append([b"[1]", b"[2]"], 18)
        folder.files("x").write(next(iter(disk.segments.logs["x"])), b"not synced")
        disk.lose_power()
        again = await RealtimeLog.open(folder.files("x"))
        assert again is not None
        assert await again.values() == [[1], [2]]


async def test_full_and_failing_disks_refuse_writes_and_syncs() -> None:
    disk = Disk(Simulation(1), "n1")
    files, folder = SimSegmentFiles(disk.segments), SimRealtimeFolder(disk.segments)
    log = await RealtimeLog.create(folder.files("x"), HEADER)
    disk.full = True
    with pytest.raises(OSError, match="No space left") as full:
        await files.write("a", b"1")
    disk.full, disk.failing = False, True
    with pytest.raises(OSError, match="Input/output error") as failing:
        await log.append([b"[1]"], 9)
    disk.failing = False
    with pytest.raises(OSError, match="an earlier write or read failed"):
        await log.append([b"[1]"], 9)
    assert (full.value.errno, failing.value.errno, log.rows) == (errno.ENOSPC, errno.EIO, 0)
