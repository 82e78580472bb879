"""Files that are not as they were written: the node's store, journal, vault, fence page, and backups.

Beyond single flipped bits (tests/metastore/test_store_damage.py, tests/raftgroup/test_journal_disk.py,
tests/vault/test_damage.py): cut off, pages twice, in each other's place, of an earlier state, zeroed, overwritten. Each
is opened in a process of its own: it says what was written, or refuses with what to do; it serves nothing else, is not
taken down, does not hang, and does not take the machine's memory (issue 5, "Fuzzing"; M9).

Not here: a page of an earlier commit in a store or journal that is otherwise sound (a write that a disk took and lost).
One LMDB file alone does not show it; digests that replicas compare do. In a vault its own sums do.
"""

from __future__ import annotations

import os
import resource
import signal
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import pytest

from palisade.metastore.backup import _FRAME, _PREFIX, MAGIC, PIECE, frame
from palisade.metastore.errors import StoreCorrupt
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.ordered_map import Table
from palisade.metastore.store_errors import BackupInvalid, StoreFailed
from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.lmdb_journal import LmdbJournal
from palisade.raftgroup.ports import Entry
from palisade.vault.directory import DATA
from palisade.vault.errors import VaultError
from palisade.vault.fence_file import FENCE_FILE, FenceFile, map_fence
from palisade.vault.fence_page import COPY_BYTES, FENCE_BYTES, Fence, FenceState, TornPage, pack_fence, unpack_fence
from palisade.vault.opening import open_vault
from palisade.vault.verification import verify_at_rest
from tests.metastore.test_backup import backup_of, checked, filled
from tests.support.fuzzing import Rounds, changed, damaged
from tests.support.store_writer import step
from tests.support.vault_feed import follow, full, items_of, state_of, write_some

PAGE = 4096
SOUND, WRONG, REFUSED, UNFORESEEN = range(4)
SECONDS_MAX = 120
MEMORY_KIB_MAX = 256 * 1024
"""Beyond what the process had."""


def torn(sound: bytes, earlier: bytes, dice: Random) -> bytes:
    """What a disk may give back instead of `sound`; `earlier` is what the file was some commits before.

    Not an empty file: that is what a crash before the first commit leaves. A journal that was lost in this way is
    noticed by the group, which knows its node with another storage.
    """
    data = bytearray(sound)
    pages = len(data) // PAGE
    for _ in range(dice.choice([1, 1, 2, 5])):
        one, other = dice.randrange(pages), dice.randrange(pages)
        here, there = slice(one * PAGE, one * PAGE + PAGE), slice(other * PAGE, other * PAGE + PAGE)
        kind = dice.randrange(7)
        if kind == 0:
            data[here] = sound[there]
        elif kind == 1:
            data[here], data[there] = sound[there], sound[here]
        elif kind == 2:
            data[here] = bytes(PAGE)
        elif kind == 3:
            data[here] = damaged(bytes(data[here]), dice).ljust(PAGE, b"\0")[:PAGE]
        elif kind == 4 and len(earlier) >= here.stop:
            data[here] = earlier[here]
        elif kind == 5:
            sector = one * PAGE + 512 * dice.randrange(8)
            older = earlier[sector : sector + 512].ljust(512, b"\0")
            data[sector : sector + 512] = dice.choice([bytes(512), dice.randbytes(512), older])
        elif kind == 6 and dice.random() < 0.3:
            return bytes(data[: dice.choice([max(1, one * PAGE), one * PAGE + dice.randrange(1, PAGE)])])
        if len(data) != len(sound):
            data = data[: len(sound)].ljust(len(sound), b"\0")
    return bytes(data)


def outcome_in_child(holds: Callable[[], bool], refusals: tuple[type[Exception], ...]) -> tuple[int, str]:
    """SOUND, WRONG, REFUSED, UNFORESEEN, or less than 0: the signal that took it down; and what it says of that."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        outcome, text = UNFORESEEN, ""
        try:
            signal.alarm(SECONDS_MAX)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            outcome = SOUND if holds() else WRONG
            if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before > MEMORY_KIB_MAX:
                outcome, text = UNFORESEEN, "memory"
        except refusals as error:
            outcome, text = REFUSED, str(error)
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, text.encode()[:4000])
            os._exit(outcome)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def check_all(
    rounds: Rounds, path: Path, sound: bytes, earlier: bytes, holds: Callable[[], bool],
    refusals: tuple[type[Exception], ...], remedies: tuple[str, ...],
) -> None:  # fmt: skip
    seen: Counter[int] = Counter()
    for dice in rounds:
        path.write_bytes(torn(sound, earlier, dice))
        outcome, said = outcome_in_child(holds, refusals)
        seen[outcome] += 1
        assert outcome in (SOUND, REFUSED), (rounds, outcome, said)
        assert outcome == SOUND or any(remedy in said for remedy in remedies), (rounds, said)
    print(dict(seen))
    assert seen[REFUSED] or sum(seen.values()) < 10


async def test_store_serves_written_data_or_nothing(tmp_path: Path, rounds: Rounds) -> None:
    store = LmdbStore(tmp_path)
    data = tmp_path / "current" / "data.mdb"
    for number in range(1, 601):
        step(store, number)
        if number % 100 == 0:
            await store.flush()
    store.close()
    store = LmdbStore(tmp_path)
    expected = contents(store)
    store.close()
    check_all(
        rounds, data, data.read_bytes(), b"", lambda: contents(LmdbStore(tmp_path)) == expected,
        (StoreCorrupt, StoreFailed), ("remove its data directory", "data directory"),
    )  # fmt: skip


def contents(store: LmdbStore) -> Any:
    found = [list(store.scan(table, b"", None)) for table in Table]
    looked_up = all(store.get(table, key) == value for table in Table for key, value in found[table])
    return found if looked_up else None


async def test_journal_has_synced_data_or_refuses(tmp_path: Path, rounds: Rounds) -> None:
    """A log that lost its end would break the promise of every acknowledgement in it."""
    journal = LmdbJournal(tmp_path)
    data = tmp_path / "data.mdb"
    dice = Random(7)
    for index in range(1, 401):
        journal.append(Entry(dice.randbytes(dice.choice([10, 200, 3000])), index, 1 + index // 100))
        if index % 40 == 0:
            journal.set_term(1 + index // 100, "n1")
            await journal.sync()
        if index == 280:
            journal.compact_to(100)
    journal.close()
    journal = LmdbJournal(tmp_path)
    expected = log_of(journal)
    journal.close()
    check_all(
        rounds, data, data.read_bytes(), b"", lambda: log_of(LmdbJournal(tmp_path)) == expected,
        (NodeFailed,), ("data directory", "join"),
    )  # fmt: skip


def log_of(journal: LmdbJournal) -> Any:
    entries = journal.slice(journal.first.index + 1, journal.last.index + 1)
    return [*entries], journal.first.index, journal.term, journal.vote


def test_verified_vault_equals_the_cluster_at_its_revision(tmp_path: Path, rounds: Rounds) -> None:
    """With an earlier head it is the vault of an earlier commit, with the LV of that: recovery adds the rest."""
    path = tmp_path / "v"
    driver = full([])
    write_some(driver, Random(1), 300)
    vault = open_vault(path)
    follow(vault, driver, 200)
    vault.backend.sync()
    earlier = (path / DATA).read_bytes()
    follow(vault, driver)
    vault.close()

    def holds() -> bool:
        verify_at_rest(path)
        opened = open_vault(path)
        return items_of(opened) == state_of(driver, opened.revision)

    check_all(
        rounds, path / DATA, (path / DATA).read_bytes(), earlier, holds, (VaultError,), ("reset", "folder", "directory")
    )


def test_fence_page_shows_published_state_or_fenced(tmp_path: Path, rounds: Rounds) -> None:
    """To readers; its writer makes a new one where it is none."""
    refusals = set[str]()
    sound = pack_fence(Fence(FenceState.ACTIVE, 1 << 60, 3, 41, 40, 7, 2, 5, b"thisboot", 9)).ljust(FENCE_BYTES, b"\0")
    for dice in rounds:
        page = damaged(sound, dice)
        (tmp_path / FENCE_FILE).write_bytes(page)
        try:
            mapped, _ = map_fence(tmp_path)
            with mapped:
                assert mapped[:COPY_BYTES] == sound[:COPY_BYTES] or torn_page(mapped[:COPY_BYTES]), rounds
        except VaultError as error:
            refusals.add(str(error).partition(": ")[2][:30])
        FenceFile(tmp_path).close()
        mapped, _ = map_fence(tmp_path)
        with mapped:
            assert unpack_fence(mapped[:COPY_BYTES]).state is FenceState.FENCED, rounds
    print(refusals)


def torn_page(copy: bytes) -> bool:
    try:
        unpack_fence(copy)
    except TornPage:
        return True
    return False


@pytest.fixture(scope="module")
def parts() -> list[bytes]:
    return backup_of(filled()[1])[1]


def test_backup_equals_written_data_or_is_refused(parts: list[bytes], rounds: Rounds) -> None:
    """Its bytes damaged anywhere; whole parts left out, twice, or in another order."""
    sound = b"".join(parts)
    for dice in rounds:
        given = list(parts)
        if dice.random() < 0.3:
            place = dice.randrange(len(given))
            given.insert(dice.randrange(len(given)), given.pop(place) if dice.random() < 0.5 else given[place])
            data = b"".join(given)
        else:
            data = damaged(sound, dice)
        refused_or_same(data, data == sound, rounds)


def test_a_backup_whose_checksums_are_right_is_looked_at_all_the_same(parts: list[bytes], rounds: Rounds) -> None:
    """Of a program that has a fault, or means ill: what is in the frames is not what belongs there."""
    for dice in rounds:
        given = [*frames_of(b"".join(parts))]
        place = dice.randrange(len(given))
        kind, payload = given[place]
        given[place] = kind, (damaged(payload, dice) if kind == PIECE else repacked(payload, dice))
        refused_or_same(MAGIC + b"".join(frame(*each) for each in given), given[place][1] == payload, rounds)


def repacked(payload: bytes, dice: Random) -> bytes:
    try:
        made: bytes = msgpack.packb(changed(msgpack.unpackb(payload), dice))
    except (ValueError, OverflowError):
        return damaged(payload, dice)
    return made


def frames_of(data: bytes) -> list[tuple[int, bytes]]:
    at, found = len(MAGIC), []
    while at < len(data):
        kind, length, crc = _FRAME.unpack_from(data, at)
        payload = data[at + _FRAME.size : at + _FRAME.size + length]
        assert zlib.crc32(payload, zlib.crc32(_PREFIX.pack(kind, length))) == crc
        found.append((kind, payload))
        at += _FRAME.size + length
    return found


def refused_or_same(data: bytes, same: bool, rounds: Rounds) -> None:
    refusal = ""
    try:
        checked(data, step=65_536)
    except BackupInvalid as error:
        refusal = str(error)
    assert (refusal == "") == same, (rounds, refusal)
    assert same or 20 < len(refusal) < 1000, (rounds, refusal)
