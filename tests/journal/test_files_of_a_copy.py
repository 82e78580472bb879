"""The files of one copy: opening, rotation, cutting, moving aside; with a crash at every step."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from palisade.catalog.activation import LocalSequence
from palisade.journal import local_file
from palisade.journal.agreed import LockHolder
from palisade.journal.blocks import FILE_HEADER_BYTES, JournalEnd, make_block
from palisade.journal.copy_state import CopyOptions, CopyState
from palisade.journal.errors import DirectoryInUse, JournalDamaged, JournalError, NewerFormat, WrongRole
from palisade.journal.files import DiskFiles
from palisade.journal.local_file import NAME, LocalState, decode, encode
from palisade.journal.log import JournalLog

FILE_BYTES = 2000


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def opened(directory: Path, role: str = "orders") -> CopyState:
    files = DiskFiles(directory)
    options = CopyOptions(role, LockHolder("a", "127.0.0.1:1"), True)
    return CopyState(files, options, JournalLog(files, file_bytes_max=FILE_BYTES, preallocates=True))


async def loaded(directory: Path, role: str = "orders") -> CopyState:
    copy = opened(directory, role)
    try:
        await copy.load()
    except BaseException:
        copy.files.close()
        raise
    return copy


async def fill(copy: CopyState, sequence: int, contents: list[bytes]) -> None:
    for content in contents:
        if not copy.log.has_room:
            await copy.log.make_room()
        copy.log.append(make_block(copy.log.end, sequence, [content]))
        await copy.log.sync()


async def contents_of(log: JournalLog) -> list[bytes]:
    return [content async for block in log.blocks_after(0) for _, content in block.entries()]


ENTRIES = [b"%d" % number * 300 for number in range(20)]


def test_journal_returns_its_entries_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        copy = await loaded(tmp_path)
        await fill(copy, 1, ENTRIES)
        end, runs = copy.log.end, copy.log.runs
        assert len(await copy.files.names()) > 5, "files are rotated"
        copy.files.close()
        copy = await loaded(tmp_path)
        assert (copy.log.end, copy.log.runs) == (end, runs)
        assert await contents_of(copy.log) == ENTRIES
        for number in range(1, 21):
            assert (await copy.log.blocks_from(number, 1))[0].first == number
            assert await copy.log.chain_at(number) is not None
        assert await copy.log.blocks_from(21) == []
        copy.files.close()

    run(work())


@pytest.mark.parametrize("keep", [0, 1, 7, 19, 20])
def test_cut_keeps_exactly_the_entries_up_to_its_position(tmp_path: Path, keep: int) -> None:
    async def work() -> None:
        copy = await loaded(tmp_path)
        await fill(copy, 1, ENTRIES)
        await copy.log.cut(JournalEnd(keep, await copy.log.chain_at(keep) or 0))
        assert copy.log.end.last == keep
        assert await contents_of(copy.log) == ENTRIES[:keep]
        await fill(copy, 2, [b"new"])
        assert await contents_of(copy.log) == [*ENTRIES[:keep], b"new"]
        copy.files.close()

    run(work())


def test_disk_that_failed_once_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync after a failed one succeeds, although pages are lost."""

    def fail(_file: int) -> None:
        raise OSError(errno.EIO, "input/output error")

    async def work() -> None:
        copy = await loaded(tmp_path)
        await fill(copy, 1, [b"one"])
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", fail)
            with pytest.raises(OSError, match="input/output error"):
                await fill(copy, 1, [b"two"])
        with pytest.raises(OSError, match="nothing is written until a restart"):
            await copy.settle()
        with pytest.raises(OSError, match="nothing is written until a restart"):
            await fill(copy, 1, [b"three"])
        copy.files.close()
        copy = await loaded(tmp_path)
        await fill(copy, 1, [b"three"])
        copy.files.close()

    run(work())


def sizes_of_files(directory: Path) -> list[int]:
    return [file.stat().st_size for file in sorted(directory.glob("0*.journal"))]


def test_newest_file_alone_has_reserved_space(tmp_path: Path) -> None:
    """A sync of a file whose length does not change takes 30 us less, measured on ext4."""

    async def work() -> None:
        copy = await loaded(tmp_path)
        await fill(copy, 1, ENTRIES)
        *full, newest = sizes_of_files(tmp_path)
        assert newest == FILE_BYTES
        assert sum(full) == copy.log.size_bytes - copy.log._segments[-1].size
        copy.files.close()
        copy = await loaded(tmp_path)
        assert copy.log.removed_bytes == 0, "reserved space is no torn write"
        await fill(copy, 1, [b"last"])
        assert await contents_of(copy.log) == [*ENTRIES, b"last"]
        copy.files.close()

    run(work())


def test_disk_that_cannot_reserve_space_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_file: int, _offset: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)

    async def work() -> None:
        copy = await loaded(tmp_path)
        await fill(copy, 1, ENTRIES)
        assert sum(sizes_of_files(tmp_path)) == copy.log.size_bytes
        assert await contents_of(copy.log) == ENTRIES
        copy.files.close()

    run(work())


class Crash(Exception):
    pass


class CrashingFiles(DiskFiles):
    """Fails before the step with number `fuse`, as a killed process does."""

    fuse = 1 << 30

    async def _in_thread(self, action: Any) -> Any:
        self.fuse -= 1
        if self.fuse < 0:
            raise Crash
        return await super()._in_thread(action)


def asides(directory: Path) -> list[Path]:
    """A crash while the entries are removed may leave a second report, on a part of the same entries."""
    return list(directory.glob("aside-*.json"))


def test_stale_entries_go_aside_with_a_report_after_a_crash_at_each_step(tmp_path: Path) -> None:
    async def attempt(directory: Path, fuse: int) -> bool:
        files = CrashingFiles(directory)
        options = CopyOptions("orders", LockHolder("a", "127.0.0.1:1"), True)
        copy = CopyState(files, options, JournalLog(files, file_bytes_max=FILE_BYTES, preallocates=True))
        try:
            await copy.load()
            if not copy.log.runs:
                await copy.adopt(LocalSequence(3, 1))
                await fill(copy, 3, ENTRIES)
            chain = await copy.log.chain_at(5)
            files.fuse = fuse
            await copy.begin_filling(JournalEnd(5, chain or 0), 4)
            return True
        except Crash:
            return False
        finally:
            files.close()

    async def work(fuse: int) -> bool:
        directory = tmp_path / str(fuse)
        complete = await attempt(directory, fuse)
        assert await attempt(directory, 1 << 30)
        copy = await loaded(directory)
        assert await contents_of(copy.log) == ENTRIES[:5]
        assert copy.state == LocalState("orders", LocalSequence(3, 1), filling=True, replica=True)
        report = max((json.loads(file.read_text()) for file in asides(directory)), key=lambda each: each["last"])
        assert (report["first"], report["last"], report["sequence"], report["agreed_sequence"]) == (6, 20, 3, 4)
        assert report["entries"] == 15
        assert (directory / report["file"]).stat().st_size > 15 * 300
        copy.files.close()
        return complete

    fuse = 0
    while not run(work(fuse)):
        fuse += 1
    assert fuse > 5


def tear(directory: Path) -> None:
    (file,) = directory.glob("0*.journal")
    file.write_bytes(file.read_bytes().rstrip(b"\0")[:-2])


def test_torn_end_is_removed_at_the_start(tmp_path: Path) -> None:
    async def work() -> None:
        copy = await loaded(tmp_path)
        await fill(copy, 1, [b"one", b"two"])
        copy.files.close()
        tear(tmp_path)
        copy = await loaded(tmp_path)
        assert await contents_of(copy.log) == [b"one"]
        assert copy.log.removed_bytes > 0
        copy.files.close()

    run(work())


def refused(directory: Path, role: str = "orders") -> JournalError:
    with pytest.raises(JournalError) as caught:
        run(loaded(directory, role))
    return caught.value


def written(directory: Path) -> Path:
    """The single file of a journal with two entries."""

    async def work() -> None:
        copy = await loaded(directory)
        await copy.adopt(LocalSequence(1, 1))
        await fill(copy, 1, [b"one", b"two"])
        copy.files.close()

    run(work())
    (file,) = directory.glob("0*.journal")
    return file


def test_damaged_entry_stops_the_start(tmp_path: Path) -> None:
    file = written(tmp_path)
    data = bytearray(file.read_bytes())
    data[FILE_HEADER_BYTES + 50] ^= 1
    file.write_bytes(data)
    assert isinstance(refused(tmp_path), JournalDamaged)
    assert file.read_bytes() == data, "nothing was changed"


def test_directory_of_another_role_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    error = refused(tmp_path, "payments")
    assert isinstance(error, WrongRole)
    assert "orders" in str(error)


def test_directory_in_use_is_refused(tmp_path: Path) -> None:
    copy = opened(tmp_path)
    with pytest.raises(DirectoryInUse, match="in use"):
        opened(tmp_path)
    copy.files.close()


def test_local_state_of_a_newer_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    monkeypatch.setattr(local_file, "FORMAT", 2)
    (tmp_path / NAME).write_bytes(encode(LocalState("orders")))
    monkeypatch.undo()
    assert isinstance(refused(tmp_path), NewerFormat)


def test_flipped_bit_in_the_format_of_the_local_state_is_damage(tmp_path: Path) -> None:
    written(tmp_path)
    packed = (tmp_path / NAME).read_bytes()
    (tmp_path / NAME).write_bytes(packed.replace(b'"format": 1', b'"format": 3'))
    assert isinstance(refused(tmp_path), JournalDamaged)


def test_local_state_with_a_wrong_checksum_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    text = (tmp_path / NAME).read_text()
    (tmp_path / NAME).write_text(text.replace('"sequence": 1', '"sequence": 2'))
    assert isinstance(refused(tmp_path), JournalDamaged)


def test_entries_without_local_state_are_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / NAME).unlink()
    assert isinstance(refused(tmp_path), JournalDamaged)


@pytest.mark.parametrize(
    "state", [LocalState("r"), LocalState("r", LocalSequence(7, 2)), LocalState("r", LocalSequence(7, 2), True, True)]
)
def test_local_state_is_read_as_written(state: LocalState) -> None:
    assert decode(encode(state), NAME) == state
