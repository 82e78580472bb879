"""The contract of a snapshot (raftgroup/ports.py), from and to the store on disk and the one in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.base.snapshots import SnapshotInvalid, SnapshotMeta
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_store import MemoryStore
from palisade.metastore.ordered_map import APPLIED_KEY, NoOwner, Table, encode_applied
from palisade.metastore.snapshot import PIECE_BYTES, StoreSnapshotReader, open_piece, seal_piece

Make = Callable[[str], Any]
KINDS = ("memory", "lmdb")


class Stores:
    """Creates stores, and restarts them as after a crash."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: dict[str, Any] = {}

    def make(self, kind: str, name: str) -> Any:
        self._made[name] = MemoryStore(name) if kind == "memory" else LmdbStore(self._directory / name)
        return self._made[name]

    def restart(self, name: str) -> Any:
        store = self._made[name]
        if isinstance(store, MemoryStore):
            store.crash()
            return store
        store.close()
        return self.make("lmdb", name)

    def close(self) -> None:
        for store in self._made.values():
            store.close()


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[Stores]:
    made = Stores(tmp_path)
    yield made
    made.close()


@pytest.fixture(params=KINDS)
def source(request: pytest.FixtureRequest, stores: Stores) -> Any:
    return filled(stores.make(request.param, "source"))


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, stores: Stores) -> Any:
    return stores.make(request.param, "target")


def filled(store: Any, rows: int = 9000, seed: int = 1) -> Any:
    """About three pieces, with long keys, empty values and one value of a whole request."""
    rng = random.Random(seed)
    for number in range(rows):
        store.put(Table.REVISION, number.to_bytes(8, "big"), rng.randbytes(rng.randrange(0, 300)))
        store.put(Table.KEY, b"key %d" % rng.randrange(10**9), b"")
    for length in (480, 481, 511, 4096):
        for last in range(3):
            store.put(Table.KEY, b"k" * (length - 1) + bytes([last]), b"value %d" % length)
    store.put(Table.LEASE, b"large", rng.randbytes(1 << 20))
    apply(store, 77, 3)
    return store


def apply(store: Any, index: int, term: int) -> None:
    store.put(Table.META, APPLIED_KEY, encode_applied(index, term))


def everything(store: Any) -> list[Any]:
    return [list(store.scan(table, b"", None)) for table in Table]


def pieces(reader: Any) -> list[bytes]:
    found = []
    while (piece := reader.chunk(len(found))) is not None:
        found.append(piece)
    return found


async def transfer(sent: list[bytes], writer: Any) -> None:
    for number, piece in enumerate(sent):
        writer.write(number, piece)
    await writer.finish()


class Watching(NoOwner):
    def __init__(self, replaced: list[bool]) -> None:
        self._replaced = replaced

    def reload(self) -> None:
        self._replaced.append(True)


async def test_received_snapshot_equals_the_sent_one(source: Any, target: Any) -> None:
    target.put(Table.LEASE, b"of before", b"")
    await target.flush()
    target.put(Table.LEASE, b"of before, not flushed", b"")
    replaced: list[bool] = []
    target.attach(Watching(replaced))
    reader = await source.open_snapshot()
    assert (reader.meta.index, reader.meta.term) == (77, 3)
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(pieces(reader)):
        assert writer.next_chunk == number
        writer.write(number, piece)
        assert target.applied == (0, 0)
    await writer.finish()
    reader.close()
    assert everything(target) == everything(source)
    assert target.applied == target.durable == (77, 3)
    assert replaced == [True]


async def test_target_continues_from_the_snapshot(source: Any, target: Any, stores: Stores) -> None:
    reader = await source.open_snapshot()
    writer = target.receive_snapshot(reader.meta)
    await transfer(pieces(reader), writer)
    reader.close()
    target.put(Table.KEY, b"after", b"1")
    apply(target, 78, 3)
    await target.flush()
    target = stores.restart("target")
    assert target.applied == (78, 3)
    assert target.get(Table.KEY, b"after") == b"1"
    assert [row for row in everything(target)[Table.KEY] if row[0] != b"after"] == everything(source)[Table.KEY]


async def test_snapshot_is_unaffected_by_later_writes(source: Any, target: Any) -> None:
    before = everything(source)
    reader = await source.open_snapshot()
    first = reader.chunk(0)
    source.put(Table.KEY, b"zzz", b"later")
    source.delete(Table.REVISION, (0).to_bytes(8, "big"))
    apply(source, 78, 3)
    await source.flush()
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(pieces(reader)):
        assert number or piece == first
        writer.write(number, piece)
    await writer.finish()
    reader.close()
    assert everything(target) == before


async def test_piece_can_be_read_again(source: Any) -> None:
    reader = await source.open_snapshot()
    first = pieces(reader)
    assert len(first) > 3
    assert reader.chunk(len(first)) is None
    assert reader.chunk(len(first) + 5) is None
    assert [reader.chunk(number) for number in (2, 2, 0, 1, len(first) - 1)] == [
        first[number] for number in (2, 2, 0, 1, -1)
    ]
    assert pieces(reader) == first
    reader.close()


async def test_piece_size_is_bounded(source: Any) -> None:
    reader = await source.open_snapshot()
    assert max(map(len, pieces(reader))) < PIECE_BYTES + (1 << 20) + 10_000
    reader.close()


async def test_interrupted_transfer_resumes(source: Any, target: Any, stores: Stores) -> None:
    """Scenarios, Raft group: a snapshot is interrupted in the middle (resumed)."""
    reader = await source.open_snapshot()
    sent = pieces(reader)
    writer = target.receive_snapshot(reader.meta)
    writer.write(0, sent[0])
    writer.write(1, sent[1])
    writer.close()
    writer = target.receive_snapshot(reader.meta)
    resumed = writer.next_chunk
    assert resumed <= 2
    for number in range(resumed, len(sent)):
        writer.write(number, sent[number])
    await writer.finish()
    reader.close()
    assert everything(target) == everything(source)


async def test_another_snapshot_starts_over(source: Any, target: Any) -> None:
    older = await source.open_snapshot()
    writer = target.receive_snapshot(older.meta)
    writer.write(0, older.chunk(0))
    older.close()
    source.put(Table.KEY, b"new", b"")
    apply(source, 99, 4)
    newer = await source.open_snapshot()
    assert newer.meta.id != older.meta.id
    writer = target.receive_snapshot(newer.meta)
    assert writer.next_chunk == 0
    await transfer(pieces(newer), writer)
    newer.close()
    assert target.applied == (99, 4)
    assert everything(target) == everything(source)


async def test_altered_piece_is_refused_and_can_be_sent_again(source: Any, target: Any) -> None:
    """Scenarios, Raft group: corrupted chunk (re-sent)."""
    reader = await source.open_snapshot()
    sent = pieces(reader)
    writer = target.receive_snapshot(reader.meta)
    for number, piece in enumerate(sent):
        for place in (0, len(piece) // 2, len(piece) - 1):
            changed = bytearray(piece)
            changed[place] ^= 1
            with pytest.raises(SnapshotInvalid, match="checksum"):
                writer.write(number, bytes(changed))
        with pytest.raises(SnapshotInvalid, match="checksum"):
            writer.write(number, b"")
        assert writer.next_chunk == number
        writer.write(number, piece)
        writer.write(number, piece)
    await writer.finish()
    reader.close()
    assert everything(target) == everything(source)


async def test_missing_piece_is_refused(source: Any, target: Any) -> None:
    reader = await source.open_snapshot()
    writer = target.receive_snapshot(reader.meta)
    with pytest.raises(SnapshotInvalid, match="expected 0"):
        writer.write(1, reader.chunk(1))
    writer.write(0, reader.chunk(0))
    with pytest.raises(SnapshotInvalid, match="is not complete"):
        await writer.finish()
    reader.close()
    assert everything(target) == [[] for _ in Table]


async def test_piece_of_another_snapshot_is_detected_at_the_end(stores: Stores, target: Any) -> None:
    source = filled(stores.make("memory", "source"))
    other = filled(stores.make("memory", "other"), seed=2)
    reader, stranger = await source.open_snapshot(), await other.open_snapshot()
    writer = target.receive_snapshot(reader.meta)
    sent = pieces(reader)
    sent[1] = stranger.chunk(1)
    with pytest.raises(SnapshotInvalid):
        await transfer(sent, writer)
    assert everything(target) == [[] for _ in Table]


@pytest.mark.parametrize(
    "runs", [[[99, [b"k", b"v"]]], [[0, [b"k"]]], [[0, [b"", b"v"]]], [[0, ["k", b"v"]]], [[0, [b"k" * 9000, b""]]], 5]
)
async def test_malformed_rows_are_refused(target: Any, source: Any, runs: Any) -> None:
    reader = await source.open_snapshot()
    writer = target.receive_snapshot(reader.meta)
    with pytest.raises(SnapshotInvalid):
        writer.write(0, seal_piece([0, runs, None]))
    assert writer.next_chunk == 0
    reader.close()


async def test_last_piece_contains_the_totals(source: Any) -> None:
    reader = await source.open_snapshot()
    _, runs, trailer = open_piece(pieces(reader)[-1])
    assert (runs, trailer[0], trailer[3:]) == ([], 1, [77, 3])
    assert trailer[1] == sum(map(len, everything(source)))
    reader.close()


@pytest.mark.parametrize(
    ("applied", "rows"),
    [
        ((77, 3), [(b"a", b"a", b"1"), (b"a", b"a", b"2")]),
        ((76, 3), [(b"a", b"a", b"1")]),
        ((77, 2), [(b"a", b"a", b"1")]),
    ],
)
async def test_complete_but_wrong_stream_is_refused(target: Any, applied: Any, rows: list[Any]) -> None:
    """A row twice; a state of another index than was announced."""
    record = (APPLIED_KEY, APPLIED_KEY, encode_applied(*applied))
    content = {Table.META: [record], Table.KEY: rows}
    meta = SnapshotMeta("wrong", 77, 3, None)
    reader = StoreSnapshotReader(meta, lambda table, _start: iter(content.get(table, [])), nothing, nothing)
    with pytest.raises(SnapshotInvalid):
        await transfer(pieces(reader), target.receive_snapshot(meta))
    assert everything(target) == [[] for _ in Table]


def nothing() -> None:
    return


async def test_aborted_transfer_leaves_the_store_unchanged(source: Any, target: Any) -> None:
    target.put(Table.KEY, b"mine", b"")
    reader = await source.open_snapshot()
    writer = target.receive_snapshot(reader.meta)
    writer.write(0, reader.chunk(0))
    writer.abort()
    assert everything(target)[Table.KEY] == [(b"mine", b"")]
    assert target.receive_snapshot(reader.meta).next_chunk == 0
    reader.close()


async def test_empty_store_can_be_sent(stores: Stores, target: Any) -> None:
    source = stores.make("lmdb", "source")
    reader = await source.open_snapshot()
    writer = target.receive_snapshot(reader.meta)
    await transfer(pieces(reader), writer)
    reader.close()
    assert everything(target) == everything(source)
