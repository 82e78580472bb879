"""A summary of the rows of a segment, for `GET /v1/segments/<segment>/rows`. Pure."""

from __future__ import annotations

from typing import Any

from palisade.catalog.realtime_rows import Columns
from palisade.catalog.rows_digest import Value
from palisade.segments.verification import inspected


def columns_of(content: bytes) -> list[dict[str, Any]]:
    """Per column: name, type, number of rows without a value, minimum and maximum (None if no row has a value).

    Decodes all rows of a Parquet file. Raises BadSegment.
    """
    return [column.as_dict() for column in inspected(content).columns]


def columns_of_rows(columns: Columns, rows: list[list[Value]]) -> list[dict[str, Any]]:
    """The same for rows in memory. Raises BadRows."""
    from palisade.catalog.parquet_rows import inspect_table, table_of

    return [column.as_dict() for column in inspect_table(table_of(columns, rows)).columns]
