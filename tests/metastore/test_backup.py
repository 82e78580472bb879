"""A backup contains the state of one revision; an altered backup is refused (issue 3, "Bad input")."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import asdict, replace
from random import Random
from typing import Any

import msgpack
import pytest

from palisade.metastore.backup import (
    BROKEN,
    END,
    FORMAT_VERSION,
    HEADER,
    MAGIC,
    PIECE,
    BackupCheck,
    BackupEncoder,
    BackupHeader,
    frame,
    header_of,
)
from palisade.metastore.digest import control_digest
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.requests import (
    BeginGeneration,
    Compact,
    DeleteRange,
    FoundCluster,
    LeaseGrant,
    Put,
    Range,
    RequestId,
)
from palisade.metastore.restore_edits import begin_restored
from palisade.metastore.state_machine import MetaStore
from palisade.metastore.store_errors import BackupInvalid
from tests.support.meta_driver import Driver


def filled() -> tuple[Driver, MemoryStore]:
    """A store of several pieces: keys, history, a lease, results for retries."""
    disk = MemoryStore("source")
    driver = Driver(disk)
    driver.do(FoundCluster("c1"))
    driver.do(LeaseGrant(60_000, 7))
    for number in range(40):
        driver.do(Put(b"key/%d" % number, b"%d" % number * 8000), RequestId("writer", number + 1))
    driver.do(Put(b"leased", b"v", lease=7))
    driver.do(Put(b"key/1", b"again"))
    driver.do(DeleteRange(b"key/2"))
    driver.do(Compact(5))
    return driver, disk


def backup_of(disk: MemoryStore) -> tuple[BackupHeader, list[bytes]]:
    """The header, and the parts of the file: begin, each piece, end."""
    reader = asyncio.run(disk.open_snapshot())
    encoder = BackupEncoder()
    header = header_of(reader, cluster="demo", created_by="0.1.0", created_ms=1)
    parts = [encoder.begin(header)]
    number = 0
    while (piece := reader.chunk(number)) is not None:
        parts.append(encoder.piece(piece))
        number += 1
    return header, [*parts, encoder.end()]


@pytest.fixture(scope="module")
def backup() -> bytes:
    return b"".join(backup_of(filled()[1])[1])


def checked(data: bytes, step: int = 1 << 20) -> BackupHeader:
    check = BackupCheck("b.backup")
    for start in range(0, len(data), step):
        check.feed(data[start : start + step])
    return check.finish()[0]


def test_backup_header_describes_the_backup() -> None:
    driver, disk = filled()
    header, parts = backup_of(disk)
    assert (header.cluster, header.cluster_id, header.generation) == ("demo", "c1", 1)
    assert (header.revision, header.minimal_revision) == (driver.store.revision, 5)
    assert header.keys == driver.store.key_count
    assert (header.index, header.term) == driver.store.applied
    assert len(parts) > 3
    assert checked(b"".join(parts)) == header


@pytest.mark.parametrize("step", [1, 13, 4096])
def test_backup_may_arrive_in_parts_of_any_size(backup: bytes, step: int) -> None:
    data = backup if step > 1 else b"".join(backup_of(Driver(MemoryStore()).tables)[1])  # type: ignore[arg-type]
    assert checked(data, step).format == FORMAT_VERSION


def cuts(length: int) -> Iterator[int]:
    random = Random(1)
    yield from range(200)
    yield from (length - cut for cut in range(1, 120))
    yield from (random.randrange(length) for _ in range(300))


def test_truncated_backup_is_refused(backup: bytes) -> None:
    for length in cuts(len(backup)):
        with pytest.raises(BackupInvalid, match=rf"cut off: it has {length} byte|not a backup"):
            checked(backup[:length])


def test_backup_with_any_bit_flipped_is_refused(backup: bytes) -> None:
    random = Random(2)
    for at in {*cuts(len(backup))}:
        changed = bytearray(backup)
        changed[at] ^= 1 << random.randrange(8)
        with pytest.raises(BackupInvalid):
            checked(bytes(changed))


def test_backup_with_missing_repeated_or_foreign_frames_is_refused() -> None:
    _, parts = backup_of(filled()[1])
    driver, disk = filled()
    driver.do(Put(b"key/3", b"other" * 8000))
    _, others = backup_of(disk)
    for wrong in (
        [*parts[:2], *parts[3:]],
        [*parts[:2], parts[1], *parts[2:]],
        [parts[0], parts[2], parts[1], *parts[3:]],
        [*parts[:2], others[2], *parts[3:]],
        [others[0], *parts[1:]],
        [*parts[:-1], others[-1]],
        parts[1:],
        [*parts, parts[1]],
        [*parts, b"x"],
    ):
        with pytest.raises(BackupInvalid):
            checked(b"".join(wrong))


def test_backup_with_valid_checksums_but_incomplete_snapshot_is_refused() -> None:
    header, _ = backup_of(filled()[1])
    encoder = BackupEncoder()
    empty = encoder.begin(header) + encoder.end()
    with pytest.raises(BackupInvalid, match="is incomplete"):
        checked(empty)
    _, disk = filled()
    reader = asyncio.run(disk.open_snapshot())
    encoder = BackupEncoder()
    data = encoder.begin(replace(header_of(reader, cluster="c", created_by="x", created_ms=1), revision=99))
    number = 0
    while (piece := reader.chunk(number)) is not None:
        data += encoder.piece(piece)
        number += 1
    with pytest.raises(BackupInvalid, match="announces"):
        checked(data + encoder.end())


def test_other_file_is_distinguished_from_a_damaged_backup() -> None:
    """Its content is not shown: it may be a file of passwords."""
    for content in (b"SQLite format 3 is what this is" + bytes(5000), b"rootsecret\n" + bytes(5000)):
        with pytest.raises(BackupInvalid, match="not a backup of Palisade: give a file written by") as refused:
            checked(content)
        assert content[:6].decode() not in str(refused.value)
    with pytest.raises(BackupInvalid, match="cut off"):
        checked(b"")


def test_newer_backup_format_names_the_version_that_wrote_it() -> None:
    header, _ = backup_of(filled()[1])
    newer = msgpack.packb(asdict(header) | {"format": FORMAT_VERSION + 1, "created_by": "7.0", "more": 1})
    with pytest.raises(BackupInvalid, match=r"format 3, written by version 7\.0"):
        checked(MAGIC + frame(HEADER, newer))


@pytest.mark.parametrize("change", [{"format": "1"}, {"revision": None}, {"cluster": 3}, {"generation": True}])
def test_malformed_header_is_refused(change: dict[str, object]) -> None:
    header, _ = backup_of(filled()[1])
    with pytest.raises(BackupInvalid, match="header"):
        checked(MAGIC + frame(HEADER, msgpack.packb(asdict(header) | change)))


@pytest.mark.parametrize("payload", [b"\xc1", b"", b"\x01", b"\x93\x01\x02"])
@pytest.mark.parametrize("kind", [HEADER, PIECE, END, 9])
def test_malformed_frames_are_refused(kind: int, payload: bytes) -> None:
    with pytest.raises(BackupInvalid):
        checked(MAGIC + frame(kind, payload))


@pytest.mark.parametrize("wrong", [float, lambda pieces: pieces + 1, lambda pieces: True])
def test_altered_totals_are_refused(wrong: Any) -> None:
    """4.0 was taken for 4 (docs/bugs-found.md)."""
    parts = backup_of(filled()[1])[1]
    pieces, size, digest = msgpack.unpackb(parts[-1][9:])
    end = msgpack.packb([wrong(pieces), size, digest])
    with pytest.raises(BackupInvalid, match="totals or hash"):
        checked(b"".join(parts[:-1]) + frame(END, end))


def test_backup_aborted_by_the_node_contains_the_reason() -> None:
    header, parts = backup_of(filled()[1])
    del header
    broken = frame(BROKEN, msgpack.packb("the file has grown\x1b[2J by 1 GiB"))
    with pytest.raises(BackupInvalid, match=r"the file has grown\?\[2J by 1 GiB"):
        checked(b"".join(parts[:2]) + broken)


def restored_from(disk: MemoryStore, name: str = "copy") -> MemoryStore:
    reader = asyncio.run(disk.open_snapshot())
    copy = MemoryStore(name)
    writer = copy.receive_snapshot(reader.meta)
    number = 0
    while (piece := reader.chunk(number)) is not None:
        writer.write(number, piece)
        number += 1
    asyncio.run(writer.finish())
    return copy


def test_restore_raises_the_generation_and_changes_no_data() -> None:
    driver, disk = filled()
    copy = restored_from(disk)
    begin_restored(copy, 2)
    store = MetaStore(copy)
    assert (store.lineage.cluster_id, store.lineage.generation) == ("c1", 2)
    assert store.digest() == driver.store.digest()
    assert store.range(Range(b"", b"\0")) == driver.store.range(Range(b"", b"\0"))
    assert store.range(Range(b"key/1", revision=6)) == driver.store.range(Range(b"key/1", revision=6))


def test_restore_gives_every_lease_its_full_ttl() -> None:
    driver, disk = filled()
    driver.wait(50_000)
    driver.do(Put(b"x"))
    assert driver.store.lease_info(7).ttl_s <= 10
    copy = restored_from(disk)
    begin_restored(copy, 2)
    lease = MetaStore(copy).lease_info(7)
    assert (lease.ttl_s, lease.keys) == (60, (b"leased",))


def test_restore_keeps_earlier_results_and_executes_later_retries() -> None:
    """M3 over a break of history: a write that is not in the state must not be answered from stored results."""
    driver, disk = filled()
    first = driver.do(Put(b"key/39", b"39" * 8000), RequestId("writer", 40))
    copy = restored_from(disk)
    lost = driver.do(Put(b"after", b"1"), RequestId("writer", 41))
    begin_restored(copy, 2)
    restored = Driver(copy)
    before = restored.store.revision
    assert restored.do(Put(b"key/39", b"39" * 8000), RequestId("writer", 40)) == first
    assert restored.store.revision == before, "a retry changes nothing"
    assert restored.value(b"after") is None
    again = restored.do(Put(b"after", b"1"), RequestId("writer", 41))
    assert again.revision == lost.revision == before + 1
    assert restored.value(b"after") == b"1"


@pytest.mark.parametrize("generation", [0, 3, 4])
def test_restore_refuses_a_generation_that_is_not_newer(generation: int) -> None:
    driver, disk = filled()
    driver.do(BeginGeneration(4))
    copy = restored_from(disk)
    before = control_digest(copy)
    with pytest.raises(ValueError, match="generation 4"):
        begin_restored(copy, generation)
    assert control_digest(copy) == before


def test_restore_of_the_same_backup_is_deterministic() -> None:
    _, disk = filled()
    one, other = restored_from(disk, "one"), restored_from(disk, "other")
    for copy in (one, other):
        begin_restored(copy, 2)
    assert one.content() == other.content()
