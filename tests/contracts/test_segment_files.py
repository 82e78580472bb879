"""The folders of a data node behave alike on a real and on a simulated disk: copies, and logs of realtime segments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from palisade.catalog.realtime_rows import columns_from
from palisade.segments.disk import FolderDisk
from palisade.segments.names import TRASH
from palisade.segments.realtime_folder import DiskFolder
from palisade.segments.realtime_log import LogHeader, RealtimeFolder, RealtimeLog
from palisade.segments.segment_store import Disk as SegmentFiles
from tests.sim.disk import Disk
from tests.sim.segment_disk import SimRealtimeFolder, SimSegmentFiles
from tests.support.segment_names import segment
from tests.support.segment_world import Files, SimulatedDisk
from tests.support.simulation import Simulation

HEADER = LogHeader(segment(1), columns_from({"id": "int"}))

FILES: dict[str, Callable[[Path], SegmentFiles]] = {
    "folder": FolderDisk,
    "of the simulator": lambda path: SimSegmentFiles(Disk(Simulation(1), "n1").segments),
    "of one data node": lambda path: SimulatedDisk(Files()),
}
FOLDERS: dict[str, Callable[[Path], RealtimeFolder]] = {
    "folder": DiskFolder,
    "of the simulator": lambda path: SimRealtimeFolder(Disk(Simulation(1), "n1").segments),
}


@pytest.fixture(params=FILES)
def files(request: pytest.FixtureRequest, tmp_path: Path) -> SegmentFiles:
    return FILES[request.param](tmp_path / "segments")


@pytest.fixture(params=FOLDERS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> RealtimeFolder:
    return FOLDERS[request.param](tmp_path / "realtime")


async def test_file_is_read_up_to_the_limit(files: SegmentFiles) -> None:
    assert await files.names() == []
    await files.write("a", b"12345")
    await files.sync("a")
    assert await files.names() == ["a"]
    assert (await files.read("a", 3), await files.read("a", 9)) == (b"123", b"12345")


async def test_missing_file_is_not_read_and_its_removal_succeeds(files: SegmentFiles) -> None:
    with pytest.raises(FileNotFoundError):
        await files.read("a", 9)
    await files.write("b", b"1")
    await files.remove("a")
    assert await files.names() == ["b"]


async def test_rename_replaces_a_file(files: SegmentFiles) -> None:
    await files.write("a", b"old")
    await files.write(".incoming", b"new")
    await files.rename(".incoming", "a")
    assert await files.names() == ["a"]
    assert await files.read("a", 9) == b"new"


async def test_conditions_of_renames_and_removals_decide(files: SegmentFiles) -> None:
    await files.write("a", b"1")
    assert not await files.rename_if("a", TRASH + "a", lambda: False)
    assert await files.names() == ["a"]
    assert await files.rename_if("a", TRASH + "a", lambda: True)
    assert await files.names() == [TRASH + "a"]
    assert not await files.remove_if(TRASH + "a", lambda: False)
    assert await files.remove_if(TRASH + "a", lambda: True)
    assert await files.names() == []


async def test_log_is_opened_again_with_its_rows(folder: RealtimeFolder) -> None:
    assert await folder.names() == []
    log = await RealtimeLog.create(folder.files("x"), HEADER)
    await log.append([b"[1]", b"[2]"], 18)
    log.release()
    assert await folder.names() == ["x"]
    again = await RealtimeLog.open(folder.files("x"))
    assert again is not None
    assert (again.header, again.rows, await again.values()) == (HEADER, 2, [[1], [2]])
    again.release()


async def test_removed_log_is_gone(folder: RealtimeFolder) -> None:
    log = await RealtimeLog.create(folder.files("x"), HEADER)
    log.release()
    await folder.remove("x")
    assert await folder.names() == []
    await folder.remove("x")


async def test_directory_without_a_header_has_no_log(folder: RealtimeFolder) -> None:
    files = folder.files("x")
    assert await folder.names() == ["x"]
    assert await RealtimeLog.open(files) is None
    files.close()
