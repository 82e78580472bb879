"""The segments of the demo's tables as Parquet files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palisade.catalog.demo.segments import columns_of, rows_in, texts_of
from palisade.catalog.demo.tables import DemoTable
from palisade.catalog.parquet_rows import parquet_of, table_of
from palisade.catalog.timeline import Interval


def file_of_text(table: DemoTable, text: bytes) -> bytes:
    """The file of one segment of `texts_of`. Raises ValueError, BadRows."""
    return parquet_of(table_of(columns_of(table), rows_in(table, text)))


def segment_files(table: DemoTable, rows: Iterable[Sequence[str]]) -> dict[Interval, bytes]:
    """The file of each segment. Raises ValueError, BadRows."""
    return {interval: file_of_text(table, text) for interval, text in texts_of(table, rows).items()}
