"""A bit that is flipped in a value is found by a start; no process is needed."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest

from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.store_errors import StoreFailed
from palisade.raftgroup.errors import JournalCorrupt
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.ports import Entry
from tests.faults.flipping import flip_bits
from tests.support.store_writer import step

SEEDS = range(20)


async def test_flipped_journal_is_refused_for_any_seed(tmp_path: Path) -> None:
    sound = LmdbJournal(tmp_path / "sound")
    for index in range(1, 401):
        sound.append(Entry(b"a command of some length %d" % index, index, 1))
        if index % 40 == 0:
            await sound.sync()
    sound.close()
    for seed in SEEDS:
        shutil.copytree(tmp_path / "sound", tmp_path / str(seed))
        flip_bits(Random(seed), tmp_path / str(seed), sure=True)
        with pytest.raises(JournalCorrupt):
            LmdbJournal(tmp_path / str(seed))


async def test_flipped_store_is_refused_for_any_seed(tmp_path: Path) -> None:
    sound = LmdbStore(tmp_path / "sound")
    for number in range(1, 201):
        step(sound, number)
        if number % 40 == 0:
            await sound.flush()
    sound.close()
    for seed in SEEDS:
        shutil.copytree(tmp_path / "sound", tmp_path / str(seed))
        flip_bits(Random(seed), tmp_path / str(seed), sure=True)
        with pytest.raises((StoreCorrupt, StoreFailed)):
            LmdbStore(tmp_path / str(seed))
