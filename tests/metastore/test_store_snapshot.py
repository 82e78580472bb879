"""Snapshots of the store on disk, beyond the contract: restarts, bounds, and changes of the file meanwhile."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from palisade.base.snapshots import SnapshotGone, SnapshotInvalid
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.ordered_map import APPLIED_KEY, Table, encode_applied
from palisade.metastore.snapshot_source import open_source
from palisade.metastore.snapshot_writer import COMMIT_BYTES
from palisade.metastore.store_errors import StoreFailed
from tests.support.store_writer import everything


async def large(directory: Path, rows: int = 12_000, map_bytes: int = 1 << 30) -> LmdbStore:
    rng = random.Random(1)
    store = LmdbStore(directory, map_bytes=map_bytes)
    for number in range(rows):
        store.put(Table.REVISION, number.to_bytes(8, "big"), rng.randbytes(1000))
    store.put(Table.META, APPLIED_KEY, encode_applied(9, 2))
    await store.flush()
    return store


def pieces(reader: Any) -> list[bytes]:
    found = []
    while (piece := reader.chunk(len(found))) is not None:
        found.append(piece)
    return found


async def test_transfer_continues_after_a_restart_of_the_receiver(tmp_path: Path) -> None:
    source = await large(tmp_path / "source")
    reader = await source.open_snapshot()
    sent = pieces(reader)
    assert sum(map(len, sent)) > 2 * COMMIT_BYTES
    target = LmdbStore(tmp_path / "target")
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(sent[:-3]):
        writer.write(number, piece)
    target.close()
    target = LmdbStore(tmp_path / "target")
    assert everything(target) == [[] for _ in Table]
    writer = target.receive_snapshot(reader.meta)
    resumed = writer.next_chunk
    assert 0 < resumed < len(sent)
    for number in range(resumed, len(sent)):
        writer.write(number, sent[number])
    await writer.finish()
    assert everything(target) == everything(source)
    reader.close()
    source.close()
    target.close()


async def test_complete_transfer_is_installed_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A crash after the last piece, at the moment of the swap: nothing is sent twice."""
    source = await large(tmp_path / "source", rows=10)
    reader = await source.open_snapshot()
    sent = pieces(reader)
    target = LmdbStore(tmp_path / "target")
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(sent):
        writer.write(number, piece)
    monkeypatch.setattr(target.directory, "swap", interrupt)
    with pytest.raises(KeyboardInterrupt):
        await writer.finish()
    assert (tmp_path / "target" / "incoming" / "complete").exists()
    target.close()
    target = LmdbStore(tmp_path / "target")
    assert target.applied == (0, 0)
    writer = target.receive_snapshot(reader.meta)
    assert writer.next_chunk == len(sent)
    await writer.finish()
    assert everything(target) == everything(source)
    reader.close()
    source.close()
    target.close()


def interrupt() -> None:
    raise KeyboardInterrupt


async def test_damaged_piece_of_a_resumed_transfer_is_not_installed(tmp_path: Path) -> None:
    source = await large(tmp_path / "source")
    reader = await source.open_snapshot()
    sent = pieces(reader)
    target = LmdbStore(tmp_path / "target")
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(sent[:-3]):
        writer.write(number, piece)
    target.close()
    incoming = tmp_path / "target" / "incoming" / "data.mdb"
    content = bytearray(incoming.read_bytes())
    for place in range(4096 * 3, len(content), 4096):
        content[place + 14] ^= 0x20
    incoming.write_bytes(content)
    target = LmdbStore(tmp_path / "target")
    writer = target.receive_snapshot(reader.meta)
    assert writer.next_chunk == 0
    for number, piece in enumerate(sent):
        writer.write(number, piece)
    await writer.finish()
    assert everything(target) == everything(source)
    reader.close()
    source.close()
    target.close()


async def test_snapshot_is_abandoned_when_the_file_grows_too_far(tmp_path: Path) -> None:
    """Its read transaction keeps LMDB from reusing freed pages: bounded."""
    source = await large(tmp_path / "source", rows=2000)
    reader = open_source(source.file, source.durable, growth_bytes_min=1 << 20)
    assert reader.chunk(0) is not None
    for round_number in range(8):
        for number in range(1000):
            source.put(Table.REVISION, number.to_bytes(8, "big"), bytes([round_number]) * 1000)
        await source.flush()
    with pytest.raises(SnapshotGone, match="open a new one"):
        reader.chunk(1)
    with pytest.raises(SnapshotGone, match="open a new one"):
        reader.chunk(1)
    reader.close()
    again = await source.open_snapshot()
    assert again.chunk(0) is not None
    again.close()
    source.close()


async def test_snapshot_ends_when_the_map_grows(tmp_path: Path) -> None:
    source = await large(tmp_path / "source", rows=100, map_bytes=1 << 20)
    reader = await source.open_snapshot()
    source.put(Table.LEASE, b"large", bytes(4 << 20))
    await source.flush()
    with pytest.raises(SnapshotGone, match="open a new one"):
        reader.chunk(0)
    reader.close()
    assert source.get(Table.LEASE, b"large") == bytes(4 << 20)
    source.close()


async def test_snapshot_larger_than_the_first_map_is_received(tmp_path: Path) -> None:
    source = await large(tmp_path / "source", rows=200)
    source.put(Table.LEASE, b"large", bytes(3 << 20))
    reader = await source.open_snapshot()
    target = LmdbStore(tmp_path / "target", map_bytes=1 << 20)
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(pieces(reader)):
        writer.write(number, piece)
    await writer.finish()
    assert everything(target) == everything(source)
    reader.close()
    source.close()
    target.close()


async def test_failed_transfer_leaves_no_file(tmp_path: Path) -> None:
    source = await large(tmp_path / "source", rows=10)
    reader = await source.open_snapshot()
    target = LmdbStore(tmp_path / "target")
    writer = target.receive_snapshot(reader.meta)
    writer.write(0, reader.chunk(0))  # type: ignore[arg-type]
    with pytest.raises(SnapshotInvalid, match="is not complete"):
        await writer.finish()
    assert not (tmp_path / "target" / "incoming").exists()
    with pytest.raises(StoreFailed, match="no longer being received"):
        writer.write(1, b"")
    target.put(Table.KEY, b"a", b"1")
    await target.flush()
    reader.close()
    source.close()
    target.close()


async def test_snapshots_of_the_same_state_are_the_same_stream(tmp_path: Path) -> None:
    source = await large(tmp_path / "source", rows=100)
    first, second = await source.open_snapshot(), await source.open_snapshot()
    assert first.meta == second.meta
    assert pieces(first) == pieces(second)
    first.close()
    second.close()
    source.close()
