"""The columns of a page equal the rows that `wire.scan_pages` unpacks one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.pipeline.page_columns import RowColumns, change_columns, row_columns
from palisade.pipeline.vault_rows import VaultRows
from palisade.vault.change import HEADER
from palisade.wire.scan_pages import BadPage, ScannedRow, changes_of, pack_change, pack_rows, rows_of
from tests.support.slice_rows import page_of

NUMBERS = st.integers(0, (1 << 63) - 1)
KEYS, VALUES = st.binary(min_size=1, max_size=300), st.binary(max_size=40)
PAGES = settings(deadline=None)


def packed(mod: int, create: int, version: int, lease: int, key: bytes, value: bytes) -> bytes:
    return HEADER.pack(mod, create, version, lease, len(key), len(value)) + key + value


ROWS = st.builds(packed, NUMBERS, NUMBERS, st.one_of(st.just(0), NUMBERS), NUMBERS, KEYS, VALUES)
CHANGES = st.builds(
    pack_change, st.integers(0, 1 << 50), st.integers(0, (1 << 32) - 1), ROWS, st.one_of(st.just(b""), ROWS)
)


def unpacked(columns: RowColumns) -> list[tuple[Any, ...]]:
    numbers = columns.mod_revisions, columns.create_revisions, columns.versions, columns.leases
    assert all(each.dtype == np.int64 for each in numbers)
    return list(
        zip(columns.keys.to_pylist(), columns.values.to_pylist(), *(each.tolist() for each in numbers), strict=True)
    )


def without_value_if_deleted(row: ScannedRow) -> tuple[Any, ...]:
    return (row.key, row.value if row.version else None, *row[2:])


@PAGES
@given(st.lists(ROWS, max_size=8))
def test_columns_of_rows_equal_the_rows_one_by_one(rows: list[bytes]) -> None:
    page = pack_rows(rows)
    assert unpacked(row_columns(page)) == list(map(tuple, rows_of(page)))


@PAGES
@given(st.lists(ROWS, max_size=8))
def test_columns_of_rows_of_a_vault_equal_the_rows_one_by_one(rows: list[bytes]) -> None:
    assert unpacked(VaultRows(*page_of(rows)).columns()) == unpacked(row_columns(pack_rows(rows)))


@PAGES
@given(st.lists(CHANGES, max_size=8))
def test_columns_of_changes_equal_the_changes_one_by_one(changes: list[bytes]) -> None:
    page = b"".join(changes)
    found, expected = change_columns(page), list(changes_of(page))
    assert unpacked(found.rows) == [without_value_if_deleted(each.row) for each in expected]
    assert found.wall_ms.tolist() == [each.wall_ms for each in expected]
    assert found.subs.tolist() == [each.sub for each in expected]
    assert found.previous.to_pylist() == [each.previous and each.previous.value for each in expected]


@PAGES
@given(st.lists(ROWS, min_size=1, max_size=4), st.data())
def test_page_of_rows_that_ends_within_a_row_is_refused(rows: list[bytes], data: st.DataObject) -> None:
    check_torn_pages(rows, row_columns, data)


@PAGES
@given(st.lists(CHANGES, min_size=1, max_size=4), st.data())
def test_page_of_changes_that_ends_within_a_change_is_refused(changes: list[bytes], data: st.DataObject) -> None:
    check_torn_pages(changes, change_columns, data)


def check_torn_pages(pieces: list[bytes], convert: Any, data: st.DataObject) -> None:
    whole = {sum(map(len, pieces[:number])) for number in range(len(pieces) + 1)}
    page = b"".join(pieces)
    cut = data.draw(st.integers(0, len(page)).filter(lambda size: size not in whole))
    with pytest.raises(BadPage, match="ends within a row"):
        convert(page[:cut])
