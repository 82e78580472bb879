"""Verified files: decoded once, remembered safely, in a thread (issue 17)."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from palisade.catalog.parquet_rows import parquet_of, table_of
from palisade.catalog.rows_digest import ColumnType
from palisade.segments import verification
from palisade.segments.disk import FolderDisk
from palisade.segments.names import SIZE_BYTES_MAX, Wanted
from palisade.segments.segment_store import SegmentStore, file_of
from palisade.segments.sources import fetch
from palisade.segments.verification import REMEMBERED, Verified, Verifier, version_of
from palisade.wire.segment_errors import BadSegment, NotFetched
from tests.support.recovery_world import Crash, Steps
from tests.support.segment_names import name
from tests.support.segment_world import Files, SimulatedDisk, Stock

COLUMNS = (("flight", ColumnType.INT), ("tail", ColumnType.STRING))


def file(rows: int, first: int = 0) -> bytes:
    return parquet_of(table_of(COLUMNS, [[number, f"N{number}"] for number in range(first, first + rows)]))


DAY, OTHER = name(1), name(2)
CONTENT = file(3)
WANTED = version_of(CONTENT)


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of bytes of each file that is decoded."""
    made: list[int] = []
    real = verification.inspected
    monkeypatch.setattr(verification, "inspected", lambda content: (made.append(len(content)), real(content))[1])
    return made


async def filled(disk: SimulatedDisk) -> SegmentStore:
    segment_store = SegmentStore(disk)
    await segment_store.put(DAY, await segment_store.verifier.of(CONTENT), CONTENT)
    await segment_store.put(OTHER, await segment_store.verifier.of(file(5)), file(5))
    await segment_store.remember()
    return segment_store


async def test_version_is_that_of_the_rows() -> None:
    verifier = Verifier()
    assert await verifier.of(CONTENT) == WANTED
    assert WANTED.is_of_rows
    assert WANTED.file_bytes_max == SIZE_BYTES_MAX
    other_writer = parquet_of(table_of(COLUMNS[::-1], [[f"N{number}", number] for number in (2, 0, 1)]))
    assert other_writer != CONTENT
    assert await verifier.of(other_writer) == WANTED
    assert (verifier.rows(WANTED.digest), verifier.rows(version_of(b"text").digest)) == (3, None)
    with pytest.raises(BadSegment, match="damaged or incomplete"):
        await verifier.of(CONTENT[:-9])


async def test_file_is_decoded_once_while_it_is_read_often(decodes: list[int]) -> None:
    segment_store = await filled(SimulatedDisk(Files()))
    before = len(decodes)
    for _ in range(3):
        assert await segment_store.read(DAY, WANTED.digest) == (CONTENT, WANTED)
    assert len(decodes) == before


async def test_start_decodes_no_file_that_was_verified_before(decodes: list[int]) -> None:
    files = Files()
    segment_store = await filled(SimulatedDisk(files))
    decodes.clear()
    again = SegmentStore(SimulatedDisk(files))
    await again.scan()
    assert again.held == segment_store.held
    assert again.fits(DAY, WANTED.digest, 3)
    assert decodes == []
    await again.remember()
    assert not again.verifier.is_changed


async def test_file_changed_while_the_node_was_down_is_decoded(decodes: list[int]) -> None:
    """The name, the size and the time of a file prove nothing."""
    files = Files()
    await filled(SimulatedDisk(files))
    changed = bytearray(CONTENT)
    changed[20] ^= 1
    files.content[file_of(DAY)] = bytes(changed)
    decodes.clear()
    again = SegmentStore(SimulatedDisk(files))
    await again.scan()
    assert decodes == [len(CONTENT)]
    assert not again.has(DAY, WANTED.digest)
    assert again.has(OTHER, version_of(file(5)).digest)


async def test_files_that_are_exchanged_have_their_own_versions() -> None:
    files = Files()
    await filled(SimulatedDisk(files))
    one, other = file_of(DAY), file_of(OTHER)
    files.content[one], files.content[other] = files.content[other], files.content[one]
    again = SegmentStore(SimulatedDisk(files))
    await again.scan()
    assert again.held == {DAY: version_of(file(5)), OTHER: WANTED}


@pytest.mark.parametrize("damage", ["cut", "bit", "forged", "empty", "gone"])
async def test_damaged_memory_of_verified_files_is_not_used(damage: str, decodes: list[int]) -> None:
    files = Files()
    segment_store = await filled(SimulatedDisk(files))
    stored = files.content.pop(REMEMBERED)
    if damage != "gone":
        files.content[REMEMBERED] = {
            "cut": stored[:-1],
            "bit": stored.replace(WANTED.digest.encode(), version_of(file(5)).digest.encode()),
            "forged": b"x" * 64 + b"\n[]",
            "empty": b"",
        }[damage]
    decodes.clear()
    again = SegmentStore(SimulatedDisk(files))
    await again.scan()
    assert again.held == segment_store.held
    assert len(decodes) == 2
    await again.remember()
    assert files.content[REMEMBERED] == stored


async def test_memory_of_verified_files_forgets_what_is_gone() -> None:
    files = Files()
    segment_store = await filled(SimulatedDisk(files))
    await segment_store.drop(OTHER)
    await segment_store.verifier.of(file(7))
    await segment_store.remember()
    assert WANTED.digest.encode() in files.content[REMEMBERED]
    for forgotten in (file(5), file(7)):
        assert version_of(forgotten).digest.encode() not in files.content[REMEMBERED]
    assert segment_store.verifier.rows(version_of(file(7)).digest) is None


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", [1, 2])
async def test_crash_while_verified_files_are_remembered_loses_no_segment(step: int, after: bool) -> None:
    files = Files()
    segment_store = await filled(SimulatedDisk(files))
    segment_store.disk = SimulatedDisk(files, Steps(step, after=after))
    await segment_store.verifier.of(file(7))
    with pytest.raises(Crash):
        await segment_store.remember()
    again = SegmentStore(SimulatedDisk(files))
    await again.scan()
    assert again.held == segment_store.held


async def test_full_disk_only_costs_the_memory_of_verified_files(caplog: pytest.LogCaptureFixture) -> None:
    files = Files()
    segment_store = await filled(SimulatedDisk(files))
    await segment_store.verifier.of(file(7))
    files.room_bytes = 0
    await segment_store.remember()
    assert "list of verified files not written" in caplog.text
    assert (await segment_store.read(DAY))[0] == CONTENT


async def test_copy_with_another_number_of_rows_than_its_record_does_not_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    segment_store = await filled(SimulatedDisk(Files()))
    assert segment_store.fits(DAY, WANTED.digest, 3)
    for _ in range(2):
        assert not segment_store.fits(DAY, WANTED.digest, 4)
    assert not segment_store.fits(DAY, version_of(file(5)).digest, 5)
    assert caplog.text.count("copy not announced, its record has another row count") == 1


async def test_fetched_file_must_have_the_rows_and_may_be_of_any_writer() -> None:
    small = Stock("n2")
    small.content[DAY] = file(3, first=1)
    half = Stock("n3")
    half.content[DAY] = CONTENT[: len(CONTENT) // 2]
    good = Stock("n4")
    good.content[DAY] = parquet_of(table_of(COLUMNS, [[number, f"N{number}"] for number in (1, 2, 0)]))
    assert await fetch(DAY, WANTED, [small, half, good], Verifier()) == good.content[DAY]
    with pytest.raises(NotFetched, match=r"n2: wrong digest rows-sha256:.*n3: no Parquet file, or a damaged"):
        await fetch(DAY, WANTED, [small, half], Verifier())
    with pytest.raises(NotFetched, match=f"expected 1 bytes of rows, got {WANTED.size_bytes}"):
        await fetch(DAY, Wanted(WANTED.digest, 1), [good], Verifier())


async def test_event_loop_runs_while_a_file_is_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work waits for the loop: it would never end on the loop's own thread."""
    proceeds = threading.Event()
    real = verification.decoded

    def decoded(file: str, content: bytes) -> Verified:
        assert proceeds.wait(30)
        return real(file, content)

    monkeypatch.setattr(verification, "decoded", decoded)
    segment_store = SegmentStore(FolderDisk(tmp_path), Verifier(asyncio.to_thread))
    await segment_store.disk.write(file_of(DAY), CONTENT)
    scan = asyncio.create_task(segment_store.scan())
    asyncio.get_running_loop().call_later(0.01, proceeds.set)
    await scan
    assert segment_store.held == {DAY: WANTED}
