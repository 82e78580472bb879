"""The digest over rows, and Parquet files of different writers with the same rows (issue 17)."""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import io
import random
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palisade.catalog import parquet_rows
from palisade.catalog.errors import BadRows
from palisade.catalog.parquet_rows import (
    SegmentContent,
    inspect_segment,
    inspect_table,
    parquet_of,
    read_table,
    table_of,
)
from palisade.catalog.rows_digest import ColumnType, RowsDigest, Value

COLUMNS = (
    ("when", ColumnType.TIMESTAMP),
    ("name", ColumnType.STRING),
    ("delay", ColumnType.INT),
    ("share", ColumnType.DOUBLE),
    ("late", ColumnType.BOOLEAN),
    ("day", ColumnType.DATE),
    ("raw", ColumnType.BINARY),
)
ROWS: list[list[Value]] = [
    [1_362_117_600_000_000_000, "N14228", -3, 0.5, False, 15_765, b"\x00\xff"],
    [None, None, None, None, None, None, None],
    [-1_000, "ÄÖ~1:2", 2**40, -0.0, True, -1, b""],
    [0, "", 0, 0.0, True, 0, b"~"],
    [0, "", 0, 0.0, True, 0, b"~"],
]


def digest_of(columns: Sequence[tuple[str, ColumnType]], rows: Sequence[Sequence[Value]]) -> RowsDigest:
    found = RowsDigest(columns)
    for row in rows:
        found.add(row)
    return found


def written(table: pa.Table, **how: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **how)
    return bytes(sink.getvalue())


def test_digest_equals_the_documented_form() -> None:
    """Computed here from the text of the module alone."""
    rows = [b"~" + b"2:-3", b"3:a:b" + b"1:7", b"3:a:b" + b"1:7"]
    header = b"palisade rows 1\n" + b"4:code" + b"6:string" + b"5:delay" + b"3:int" + b"\n"
    expected = hashlib.sha256(header + b"".join(sorted(hashlib.sha256(row).digest() for row in rows))).hexdigest()
    columns = (("delay", ColumnType.INT), ("code", ColumnType.STRING))
    found = digest_of(columns, [[-3, None], [7, "a:b"], [7, "a:b"]])
    assert found.digest() == f"rows-sha256:{expected}"
    assert (found.rows, found.size_bytes) == (3, sum(map(len, rows)))


@pytest.mark.parametrize(
    ("kind", "value", "form"),
    [
        (ColumnType.DOUBLE, 1.0, b"16:3ff0000000000000"),
        (ColumnType.DOUBLE, -0.0, b"16:0000000000000000"),
        (ColumnType.DOUBLE, -float("nan"), b"16:7ff8000000000000"),
        (ColumnType.BOOLEAN, True, b"1:1"),
        (ColumnType.TIMESTAMP, 1, b"1:1"),
        (ColumnType.DATE, -1, b"2:-1"),
        (ColumnType.DECIMAL, Decimal("-12.0500"), b"6:-12.05"),
        (ColumnType.DECIMAL, Decimal("1E+2"), b"3:100"),
        (ColumnType.DECIMAL, Decimal("-0.00"), b"1:0"),
        (ColumnType.STRING, "ä", b"2:\xc3\xa4"),
        (ColumnType.BINARY, b"\x00", b"1:\x00"),
        (ColumnType.BINARY, None, b"~"),
    ],
)
def test_form_of_a_value_is_the_documented_one(kind: ColumnType, value: Value, form: bytes) -> None:
    assert kind.form(value) == form


def test_file_has_the_digest_of_its_rows() -> None:
    found, expected = inspect_segment(parquet_of(table_of(COLUMNS, ROWS))), digest_of(COLUMNS, ROWS)
    assert (found.rows, found.size_bytes, found.digest) == (5, expected.size_bytes, expected.digest())
    assert inspect_table(table_of(COLUMNS, ROWS)) == found


def test_statistics_are_those_of_the_rows() -> None:
    found = {each.name: each.as_dict() for each in inspect_segment(parquet_of(table_of(COLUMNS, ROWS))).columns}
    assert list(found) == [name for name, _ in COLUMNS]
    assert found["when"] == {
        "name": "when",
        "type": "timestamp",
        "nulls": 1,
        "min": "1969-12-31T23:59:59.999999Z",
        "max": "2013-03-01T06:00:00Z",
    }
    assert (found["name"]["min"], found["name"]["max"]) == ("", "ÄÖ~1:2")
    assert (found["delay"]["min"], found["delay"]["max"]) == (-3, 2**40)
    assert (found["day"]["min"], found["day"]["max"]) == ("1969-12-31", "2013-03-01")
    assert (found["raw"]["min"], found["raw"]["max"]) == ("", "7e")
    assert (found["late"]["min"], found["late"]["max"]) == (False, True)


def test_statistics_ignore_nan_and_values_that_no_row_has() -> None:
    double = pa.array([float("nan"), float("-inf"), None])
    text = pa.DictionaryArray.from_arrays(pa.array([1, 1, None]), pa.array(["a", "b", "c"]))
    first, second = inspect_table(pa.table({"double": double, "text": text})).columns
    assert (first.least, first.greatest, first.nulls) == ("-inf", "-inf", 1)
    assert (second.least, second.greatest, second.nulls) == ("b", "b", 1)


def shuffled(table: pa.Table) -> pa.Table:
    return table.take(pa.array(random.Random(3).sample(range(table.num_rows), table.num_rows), pa.int64()))


def spark_like(table: pa.Table) -> bytes:
    """INT96 timestamps, and every column optional."""
    return written(table, use_deprecated_int96_timestamps=True, version="1.0", compression="snappy")


VARIANTS: dict[str, Callable[[pa.Table], bytes]] = {
    "one row per group": lambda table: written(table, row_group_size=1),
    "other order of rows": lambda table: written(shuffled(table)),
    "other order of columns": lambda table: written(table.select(table.column_names[::-1])),
    "no compression, no dictionary": lambda table: written(table, compression="none", use_dictionary=False),
    "gzip, small pages": lambda table: written(table, compression="gzip", data_page_size=1, data_page_version="2.0"),
    "INT96": spark_like,
    "no Arrow schema": lambda table: written(table, store_schema=False),
    "large types": lambda table: written(
        table.cast(
            pa.schema([pa.field(each.name, LARGE.get(each.type, each.type), each.nullable) for each in table.schema])
        )
    ),
    "dictionaries": lambda table: written(
        pa.table({name: column.dictionary_encode() for name, column in zip(table.column_names, table, strict=True)})
    ),
    "timestamps without zone, nanoseconds": lambda table: written(
        table.set_column(0, "when", table["when"].cast(pa.timestamp("ns", "UTC")).cast(pa.timestamp("ns")))
    ),
    "another zone": lambda table: written(
        table.set_column(0, "when", table["when"].cast(pa.timestamp("us", tz="America/New_York")))
    ),
}
LARGE = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_files_of_other_writers_have_the_same_digest(variant: str) -> None:
    table = table_of(COLUMNS, ROWS)
    found, expected = inspect_segment(VARIANTS[variant](table)), inspect_segment(parquet_of(table))
    assert (found.digest, found.rows, found.size_bytes) == (expected.digest, expected.rows, expected.size_bytes)
    assert sorted(found.columns, key=lambda each: each.name) == sorted(expected.columns, key=lambda each: each.name)


def test_width_of_numbers_does_not_count() -> None:
    narrow = pa.table({"a": pa.array([1, 255], pa.uint8()), "b": pa.array([0.5, 2.0], pa.float32())})
    wide = pa.table({"a": pa.array([1, 255], pa.int64()), "b": pa.array([0.5, 2.0], pa.float64())})
    assert inspect_segment(written(narrow)) == inspect_segment(written(wide))
    not_null = wide.cast(pa.schema([pa.field("a", pa.int64(), False), pa.field("b", pa.float64(), False)]))
    assert inspect_segment(written(not_null)) == inspect_segment(written(wide))


@pytest.mark.parametrize(
    "changed",
    [
        {"a": pa.array([1, 2])},
        {"a": pa.array([1, 2, 2, 2])},
        {"a": pa.array([1, 2, None])},
        {"a": pa.array([1.0, 2.0, 2.0])},
        {"a": pa.array(["1", "2", "2"])},
        {"b": pa.array([1, 2, 2])},
        {"a": pa.array([1, 2, 2]), "b": pa.array([None, None, None], pa.int64())},
    ],
)
def test_other_rows_have_another_digest(changed: dict[str, pa.Array]) -> None:
    assert (
        inspect_segment(written(pa.table(changed))).digest
        != inspect_segment(written(pa.table({"a": [1, 2, 2]}))).digest
    )


def test_neighbouring_values_cannot_be_confused() -> None:
    columns = (("a", ColumnType.STRING), ("b", ColumnType.STRING))
    digests = {
        digest_of(columns, [row]).digest()
        for row in (["1:b", ""], ["", "1:b"], ["~", "b"], [None, "~b"], ["a1:b", ""], ["a", "b"])
    }
    assert len(digests) == 6


values: st.SearchStrategy[list[list[Any]]] = st.lists(
    st.tuples(
        st.none() | st.integers(-(2**40), 2**40).map(lambda us: us * 1000),
        st.none() | st.text(st.characters(codec="utf-8"), max_size=4),
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(),
        st.none() | st.booleans(),
        st.none() | st.integers(-10_000, 10_000),
        st.none() | st.binary(max_size=3),
    ).map(list),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(rows=values, variant=st.sampled_from(sorted(VARIANTS)), random=st.randoms())
def test_any_rows_of_any_writer_have_the_digest_of_the_rows(
    rows: list[list[Any]], variant: str, random: random.Random
) -> None:
    expected = digest_of(COLUMNS, rows)
    table = table_of(COLUMNS, random.sample(rows, len(rows)))
    found = inspect_segment(VARIANTS[variant](table))
    assert (found.digest, found.rows, found.size_bytes) == (expected.digest(), len(rows), expected.size_bytes)


def test_many_rows_and_batches_have_the_digest_of_the_rows() -> None:
    rows: list[list[Value]] = [[f"n{number % 3000}", number % 7] for number in range(10_000)]
    columns = (("name", ColumnType.STRING), ("number", ColumnType.INT))
    found = inspect_segment(written(table_of(columns, rows), row_group_size=7_000))
    assert (found.rows, found.digest) == (10_000, digest_of(columns, rows).digest())
    assert (found.columns[1].least, found.columns[1].greatest) == (0, 6)


# What is refused.

FILE = parquet_of(table_of(COLUMNS, ROWS))


@pytest.mark.parametrize(
    "content",
    [b"", b"PAR1", b"PAR1PAR1", FILE[: len(FILE) // 2], FILE[:-1], FILE[4:], b"a\x1fb\x1e"],
    ids=["empty", "magic", "two magics", "half", "without its end", "without its start", "text"],
)
def test_no_parquet_file_is_refused(content: bytes) -> None:
    with pytest.raises(BadRows, match="no Parquet file, or a damaged or incomplete one"):
        inspect_segment(content)


def test_damaged_files_are_refused_or_have_other_rows() -> None:
    expected = inspect_segment(FILE)
    rng = random.Random(17)
    refused = 0
    for _ in range(400):
        damaged = bytearray(FILE)
        damaged[rng.randrange(len(FILE))] ^= 1 << rng.randrange(8)
        try:
            found: SegmentContent = inspect_segment(bytes(damaged))
        except BadRows:
            refused += 1
        else:
            assert found.digest != expected.digest or found == expected
    assert refused > 200


def test_file_above_the_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_rows, "ROWS_MAX", 4)
    with pytest.raises(BadRows, match="5 rows or more"):
        inspect_segment(FILE)
    with pytest.raises(BadRows, match="5 rows or more"):
        inspect_table(table_of(COLUMNS, ROWS))
    monkeypatch.setattr(parquet_rows, "ROWS_MAX", 5)
    monkeypatch.setattr(parquet_rows, "DECODED_BYTES_MAX", 100)
    with pytest.raises(BadRows, match="bytes without compression"):
        inspect_segment(FILE)
    monkeypatch.setattr(parquet_rows, "FILE_BYTES_MAX", len(FILE) - 1)
    with pytest.raises(BadRows, match=f"{len(FILE)} bytes: a segment has at most"):
        inspect_segment(FILE)


def test_small_file_of_many_bytes_is_refused_before_it_is_expanded() -> None:
    """One text of 1 MiB in 100,000 rows: a file of some KiB."""
    bomb = written(pa.table({"a": pa.array(["x" * (1 << 20)] * 1, pa.string()).take(pa.array([0] * 1_000))}))
    assert len(bomb) < 1 << 21
    with pytest.raises(BadRows, match="bytes of rows or more"):
        inspect_segment(bomb)


@pytest.mark.parametrize(
    "array",
    [pa.array([[1]]), pa.array([{"a": 1}]), pa.array([dt.time(1)]), pa.array([None]), pa.array([dt.timedelta(1)])],
)
def test_unsupported_type_is_refused(array: pa.Array) -> None:
    with pytest.raises(BadRows, match="column a has the type"):
        inspect_segment(written(pa.table({"a": array})))
    with pytest.raises(BadRows, match="column a has the type"):
        parquet_of(pa.table({"a": array}))


def test_columns_are_checked() -> None:
    with pytest.raises(BadRows, match="the rows have no columns"):
        inspect_segment(written(pa.table({})))
    with pytest.raises(BadRows, match="column a occurs twice"):
        inspect_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))
    with pytest.raises(BadRows, match="has 2 values instead of 1"):
        RowsDigest((("a", ColumnType.INT),)).add([1, 2])
    with pytest.raises(BadRows, match="value of another type"):
        table_of((("a", ColumnType.INT),), [["x"]])


def test_table_read_from_a_file_has_its_rows() -> None:
    assert read_table(FILE).to_pylist() == table_of(COLUMNS, ROWS).to_pylist()


def test_program_of_the_document_prints_what_a_record_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (Path(__file__).parents[2] / "docs" / "segments.md").read_text(encoding="utf-8")
    (program,) = re.findall(
        r"^```python\n(import palisade\n\nfound = palisade\.inspect_segment.*?)^```", document, re.M | re.S
    )
    monkeypatch.chdir(tmp_path)
    Path("2013-03-01.parquet").write_bytes(parquet_of(table_of(COLUMNS, ROWS)))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    expected = digest_of(COLUMNS, ROWS)
    assert out.getvalue() == f"{expected.rows} {expected.size_bytes} {expected.digest()}\n"
