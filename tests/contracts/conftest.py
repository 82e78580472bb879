"""The implementations under each contract, and the simulation of a power failure for each."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.memory_journal import MemoryJournal


class MemoryDisk:
    """A journal that lives as long as the test and simulates a power failure itself."""

    def __init__(self) -> None:
        self.journal = MemoryJournal()

    def open(self) -> MemoryJournal:
        return self.journal

    def lose_power(self) -> MemoryJournal:
        self.journal.crash()
        return self.journal

    def close(self) -> None:
        self.journal.close()


class LmdbDisk:
    """A power failure is a copy of the file: LMDB writes pages only in commits, so the copy is what a disk has."""

    def __init__(self, directory: Path, **options: Any) -> None:
        self._directory = directory
        self._options = options
        self._lives = 0
        self.journal: LmdbJournal | None = None

    def open(self) -> LmdbJournal:
        if self.journal is not None:
            self.journal.close()
        self.journal = LmdbJournal(self._path(), **self._options)
        return self.journal

    def lose_power(self) -> LmdbJournal:
        before = self._path()
        self._lives += 1
        self._path().mkdir(parents=True)
        shutil.copyfile(before / "data.mdb", self._path() / "data.mdb")
        reopened = self.open()
        shutil.rmtree(before)
        return reopened

    def close(self) -> None:
        if self.journal is not None:
            self.journal.close()
            self.journal = None

    def _path(self) -> Path:
        return self._directory / f"life-{self._lives}"


JOURNALS: dict[str, Callable[[Path], MemoryDisk | LmdbDisk]] = {
    "memory": lambda _directory: MemoryDisk(),
    "lmdb": LmdbDisk,
    "lmdb-little-memory": lambda directory: LmdbDisk(directory, memory_bytes=1_000),
    "lmdb-no-patience": lambda directory: LmdbDisk(directory, patience_s=0.0),
}


@pytest.fixture(params=JOURNALS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryDisk | LmdbDisk]:
    """The disk of a journal: `open()`, and `lose_power()`, which returns the journal after the restart."""
    made = JOURNALS[request.param](tmp_path)
    yield made
    made.close()
