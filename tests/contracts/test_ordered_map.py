"""The contract of an ordered map (metastore/ordered_map.py): compared with a dict, with flushes and restarts in
between.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import Table

LENGTHS = (479, 480, 481, 511, 512, 4096)


class MemoryUnderTest:
    """Flushes and restarts have no effect."""

    def __init__(self, _directory: Path) -> None:
        self.map: Any = MemoryMap()

    async def flush(self) -> None:
        return

    async def reopen(self) -> None:
        return

    def close(self) -> None:
        return


class LmdbUnderTest:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.map: Any = LmdbStore(directory / "store", map_bytes=1 << 20)

    async def flush(self) -> None:
        await self.map.flush()

    async def reopen(self) -> None:
        await self.map.flush()
        self.map.close()
        self.map = LmdbStore(self._directory / "store", map_bytes=1 << 20)

    def close(self) -> None:
        self.map.close()


IMPLEMENTATIONS: dict[str, Any] = {"memory": MemoryUnderTest, "lmdb": LmdbUnderTest}


@pytest.fixture(params=IMPLEMENTATIONS)
def tested(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = IMPLEMENTATIONS[request.param](tmp_path)
    yield made
    made.close()


def content(tables: Any, table: Table = Table.KEY, start: bytes = b"", end: bytes | None = None) -> list[Any]:
    return list(tables.scan(table, start, end))


async def test_new_map_is_empty(tested: Any) -> None:
    assert tested.map.get(Table.KEY, b"a") is None
    assert all(content(tested.map, table) == [] for table in Table)


async def test_map_reads_its_writes_at_once(tested: Any) -> None:
    tested.map.put(Table.KEY, b"a", b"1")
    tested.map.put(Table.KEY, b"a", b"2")
    tested.map.put(Table.REVISION, b"a", b"")
    assert tested.map.get(Table.KEY, b"a") == b"2"
    assert tested.map.get(Table.REVISION, b"a") == b""
    tested.map.delete(Table.KEY, b"a")
    tested.map.delete(Table.KEY, b"never was")
    assert tested.map.get(Table.KEY, b"a") is None
    assert content(tested.map) == []


async def test_deleted_key_stays_deleted_over_a_flush(tested: Any) -> None:
    tested.map.put(Table.KEY, b"a", b"1")
    await tested.flush()
    tested.map.delete(Table.KEY, b"a")
    assert content(tested.map) == []
    await tested.flush()
    assert content(tested.map) == []
    await tested.reopen()
    assert tested.map.get(Table.KEY, b"a") is None


async def test_scan_runs_in_both_directions_within_its_bounds(tested: Any) -> None:
    for number, key in enumerate((b"c", b"a", b"e", b"b", b"d")):
        tested.map.put(Table.KEY, key, b"%d" % number)
        if number == 2:
            await tested.flush()
    assert [key for key, _ in content(tested.map)] == [b"a", b"b", b"c", b"d", b"e"]
    assert [key for key, _ in tested.map.scan(Table.KEY, b"b", b"d")] == [b"b", b"c"]
    assert [key for key, _ in tested.map.scan(Table.KEY, b"b", b"d", reverse=True)] == [b"c", b"b"]
    assert [key for key, _ in tested.map.scan(Table.KEY, b"bb", None, reverse=True)] == [b"e", b"d", b"c"]
    assert [key for key, _ in tested.map.scan(Table.KEY, b"x", None)] == []
    assert [key for key, _ in tested.map.scan(Table.KEY, b"d", b"b")] == []


async def test_scan_of_a_changed_table_raises(tested: Any) -> None:
    for key in (b"a", b"b", b"c"):
        tested.map.put(Table.KEY, key, b"")
    await tested.flush()
    for change in (lambda: tested.map.put(Table.KEY, b"b", b"x"), lambda: tested.map.delete(Table.KEY, b"c")):
        items = tested.map.scan(Table.KEY, b"", None)
        next(items)
        change()
        with pytest.raises(RuntimeError, match="KEY changed during a scan"):
            next(items)


async def test_other_tables_may_change_during_a_scan(tested: Any) -> None:
    tested.map.put(Table.KEY, b"a", b"")
    tested.map.put(Table.KEY, b"b", b"")
    for key, value in tested.map.scan(Table.KEY, b"", None):
        tested.map.put(Table.REVISION, key, value)
    assert content(tested.map, Table.REVISION) == [(b"a", b""), (b"b", b"")]


@pytest.mark.parametrize("length", LENGTHS)
async def test_keys_around_lmdbs_limit_are_stored(tested: Any, length: int) -> None:
    shared = b"p" * (length - 2)
    keys = [shared + bytes(pair) for pair in ((0, 0), (0, 255), (255, 0), (255, 255))]
    neighbours = [shared[:-1] + b"o", shared, shared + b"\xff", shared[:100], b"q"]
    expected = sorted([*keys, *neighbours])
    for key in reversed(expected):
        tested.map.put(Table.KEY, key, key[-3:])
    for _ in range(2):
        assert content(tested.map) == [(key, key[-3:]) for key in expected]
        assert [key for key, _ in tested.map.scan(Table.KEY, b"", None, reverse=True)] == expected[::-1]
        assert all(tested.map.get(Table.KEY, key) == key[-3:] for key in expected)
        for first in range(len(expected)):
            for last in range(first, len(expected)):
                found = [key for key, _ in tested.map.scan(Table.KEY, expected[first], expected[last])]
                assert found == expected[first:last]
        await tested.flush()


async def test_long_keys_with_a_common_prefix_are_distinct(tested: Any) -> None:
    group = sorted(b"x" * 480 + b"%d" % number * 7 for number in range(50))
    for key in group:
        tested.map.put(Table.KEY, key, key[480:])
    await tested.reopen()
    tested.map.delete(Table.KEY, group[3])
    tested.map.put(Table.KEY, group[4], b"new")
    await tested.reopen()
    expected = [(key, b"new" if number == 4 else key[480:]) for number, key in enumerate(group) if number != 3]
    assert content(tested.map) == expected
    assert list(tested.map.scan(Table.KEY, group[10], group[20], reverse=True)) == expected[9:19][::-1]
    assert tested.map.get(Table.KEY, group[3]) is None


async def test_map_grows_beyond_its_initial_size(tested: Any) -> None:
    """The LMDB under test begins with a map of 1 MiB: it grows."""
    value = bytes(100_000)
    for number in range(50):
        tested.map.put(Table.REVISION, number.to_bytes(8, "big"), value)
        if number % 10 == 9:
            await tested.flush()
    await tested.reopen()
    assert sum(len(value) for _, value in tested.map.scan(Table.REVISION, b"", None)) == 5_000_000


async def test_map_stores_a_value_of_request_size(tested: Any) -> None:
    value = bytes(range(256)) * 8192
    tested.map.put(Table.REVISION, b"r", value)
    await tested.reopen()
    assert tested.map.get(Table.REVISION, b"r") == value


def peeked(tables: Any, table: Table, start: bytes, end: bytes | None, limit: int) -> list[tuple[bytes, bytes]]:
    """All pages; trailing bytes of values are omitted."""
    found: list[tuple[bytes, bytes]] = []
    after: bytes | None = start
    while after is not None:
        rows, after = tables.peek(table, after, end, limit)
        found += rows
    return found


@pytest.mark.parametrize("limit", [1, 3, 1000])
async def test_peek_returns_the_rows_of_a_scan_page_by_page(tested: Any, limit: int) -> None:
    """Including long keys, and rows that are unflushed, overwritten or deleted."""
    short = [b"%02d" % number for number in range(30)]
    long = [b"15" + b"x" * 500 + b"%d" % number for number in range(5)]
    for key in [*short[::2], *long[::2]]:
        tested.map.put(Table.KEY, key, b"old" + key)
    await tested.flush()
    for key in [*short[::3], *long[1::2]]:
        tested.map.put(Table.KEY, key, b"new" + key)
    for key in (short[4], short[15], long[2], b"never"):
        tested.map.delete(Table.KEY, key)
    for start, end in ((b"", None), (b"04", b"20"), (long[1], None), (b"", long[2]), (b"9", None)):
        rows = peeked(tested.map, Table.KEY, start, end, limit)
        expected = content(tested.map, Table.KEY, start, end)
        assert [key for key, _ in rows] == [key for key, _ in expected]
        assert all(row[1].startswith(value) for row, (_, value) in zip(rows, expected, strict=True))


@pytest.mark.parametrize("length", [3, 600], ids=["short keys", "long keys"])
async def test_peek_of_large_rows_ends_early_and_continues(tested: Any, length: int) -> None:
    """Two thousand values of a MiB are 2 GB, too much for one answer."""
    keys = [b"%03d" % number + b"x" * (length - 3) for number in range(64)]
    for key in keys:
        tested.map.put(Table.KEY, key, bytes(1 << 20))
    await tested.flush()
    rows, after = tested.map.peek(Table.KEY, b"", None, 2_000)
    assert 4 <= len(rows) <= 24
    assert after is not None
    assert [key for key, _ in peeked(tested.map, Table.KEY, b"", None, 2_000)] == keys


KEYS = st.one_of(
    st.binary(min_size=1, max_size=3),
    st.builds(
        lambda prefix, length, tail: (prefix * length)[: length - len(tail)] + tail,
        st.sampled_from([b"a", b"b", b"a\xff"]),
        st.sampled_from(LENGTHS),
        st.binary(max_size=2),
    ),
)
TABLES = st.sampled_from([Table.META, Table.KEY])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), TABLES, KEYS, st.binary(max_size=4)),
        st.tuples(st.just("delete"), TABLES, KEYS),
        st.tuples(st.just("get"), TABLES, KEYS),
        st.tuples(st.just("scan"), TABLES, KEYS, st.one_of(st.none(), KEYS), st.booleans()),
        st.tuples(st.sampled_from(["flush", "begin flush", "reopen"])),
    ),
    max_size=40,
)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
@settings(max_examples=60, deadline=None)
@given(steps=STEPS)
def test_map_behaves_like_a_dict(name: str, steps: list[Any]) -> None:
    directory = Path(tempfile.mkdtemp())
    try:
        with asyncio.Runner() as runner:
            runner.run(compare(IMPLEMENTATIONS[name](directory), steps))
    finally:
        shutil.rmtree(directory)


async def compare(tested: Any, steps: list[Any]) -> None:
    """`begin flush` leaves a flush in progress, so that later steps see all three layers of the store."""
    model: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
    flushes: list[asyncio.Future[None]] = []
    for step in steps:
        match step:
            case ("put", table, key, value):
                tested.map.put(table, key, value)
                model[table][key] = value
            case ("delete", table, key):
                tested.map.delete(table, key)
                model[table].pop(key, None)
            case ("get", table, key):
                assert tested.map.get(table, key) == model[table].get(key)
            case ("scan", table, start, end, reverse):
                found = list(tested.map.scan(table, start, end, reverse))
                keys = sorted(key for key in model[table] if key >= start and (end is None or key < end))
                assert found == [(key, model[table][key]) for key in (reversed(keys) if reverse else keys)]
            case ("begin flush",):
                flushes.append(asyncio.ensure_future(tested.flush()))
                await asyncio.sleep(0)
            case ("flush",):
                await tested.flush()
            case ("reopen",):
                await asyncio.gather(*flushes)
                await tested.reopen()
    await asyncio.gather(*flushes)
    await tested.reopen()
    for table in Table:
        assert list(tested.map.scan(table, b"", None)) == sorted(model[table].items())
    tested.close()
