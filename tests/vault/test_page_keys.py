"""The keys of LMDB's branch pages divide a table as its pages do."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lmdb
import pytest

from palisade.base.lmdb_env import raw_pages
from palisade.vault.errors import UnknownPages
from palisade.vault.page_keys import TableTree, page_keys, tree_of

ROWS = 30_000
TABLE = b"ENTRY"
BOUNDS = [(b"", None), (b"k1", b"k2"), (b"k15", None), (b"", b"k0999"), (b"k777", b"k7770000"), (b"z", None)]


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Keys up to LMDB's maximum, values beyond a page, pages split in any order."""
    numbers = random.Random(7)
    found = lmdb.open(str(tmp_path_factory.mktemp("lmdb")), map_size=1 << 28, max_dbs=4, sync=False)
    table = found.open_db(TABLE)
    with found.begin(write=True, db=table) as txn:
        for number in numbers.sample(range(ROWS), ROWS):
            key = b"k%05d" % number + b"x" * (490 if number % 500 == 0 else number % 7)
            txn.put(key, b"v" * (9_000 if number % 300 == 0 else numbers.randrange(200)))
    yield found
    found.close()


def tree(env: Any) -> TableTree:
    with env.begin() as txn:
        return tree_of(txn.get(TABLE))


def keys_of(env: Any, start: bytes = b"", end: bytes | None = None, stride: int = 1) -> list[bytes]:
    with raw_pages(Path(env.path())) as read:
        return list(page_keys(read, tree(env), start, end, stride))


def test_each_page_with_rows_begins_at_one_of_the_keys(env: Any) -> None:
    found = keys_of(env)
    assert tree(env).depth >= 3
    assert len(found) == tree(env).leaf_pages - 1
    assert found == sorted(set(found))
    with env.begin() as txn, txn.cursor(env.open_db(TABLE)) as cursor:
        keys = list(cursor.iternext(values=False))
    places = sorted({sum(key < each for key in keys) for each in random.Random(1).sample(found, 50)})
    assert len(places) == 50, "between two of the keys there is a row"
    assert len(keys) == tree(env).entries == ROWS


@pytest.mark.parametrize("stride", [1, 3, 1_000])
@pytest.mark.parametrize(("start", "end"), BOUNDS)
def test_keys_of_a_range_are_those_within_it(env: Any, start: bytes, end: bytes | None, stride: int) -> None:
    within = [key for key in keys_of(env) if key > start and (end is None or key < end)]
    found = keys_of(env, start, end, stride)
    assert set(found) <= set(within)
    assert found == sorted(found)
    if stride == 1:
        assert found == within
    if stride == 3:
        assert len(found) >= len(within) // 4


def test_keys_are_those_of_the_snapshot_while_the_table_is_rewritten(env: Any) -> None:
    """Between any two pages, each row is written: LMDB writes no page that the snapshot reaches."""
    table, written = env.open_db(TABLE), [0]
    expected = keys_of(env)
    with env.begin() as txn, raw_pages(Path(env.path())) as read:

        def read_later(number: int) -> bytes:
            if written[0] < 10:
                with env.begin(write=True, db=table) as other:
                    for at in range(written[0], ROWS, 10):
                        other.put(b"k%05d" % at + b"x" * (at % 7), b"other" * 40)
                written[0] += 1
            return read(number)

        assert list(page_keys(read_later, tree_of(txn.get(TABLE)), b"", None, 1)) == expected
    assert written[0] > 5
    assert keys_of(env) != expected


@pytest.mark.parametrize(
    "damaged",
    [
        lambda read, number: read(number + 1),
        lambda read, number: read(number)[:8],
        lambda read, number: read(number)[:200],
        lambda read, number: b"",
        lambda read, number: read(number)[:10] + b"\x02\0" + read(number)[12:],
    ],
    ids=["another", "head", "torn", "missing", "leaf"],
)
def test_pages_of_another_format_are_refused(env: Any, damaged: Any) -> None:
    with raw_pages(Path(env.path())) as read:
        found = page_keys(partial(damaged, read), tree(env), b"", None, 1)
        with pytest.raises(UnknownPages):
            list(found)
    with pytest.raises(UnknownPages):
        tree_of(b"")


def test_table_of_one_page_has_no_keys(tmp_path: Path) -> None:
    env = lmdb.open(str(tmp_path), max_dbs=1)
    table = env.open_db(TABLE)
    assert keys_of(env) == []
    with env.begin(write=True, db=table) as txn:
        txn.put(b"a", b"1")
    assert keys_of(env) == []
    env.close()
