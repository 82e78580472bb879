"""What the rows of a segment are: their number, and the least and greatest value of each column. Pure.

Rows are stored as in `catalog/demo/segments.py`: the fields joined by U+001F, each row ended by U+001E.
"""

from __future__ import annotations

from typing import Any

from palisade.catalog.demo.tables import TABLES, DemoTable
from palisade.segments.names import segment_named

ROW_END, FIELD_END = b"\x1e", "\x1f"
DATA_SOURCES = {table.name: table for table in TABLES}


def count_rows(content: bytes) -> int:
    return content.count(ROW_END)


def columns_of(name: str, content: bytes) -> list[dict[str, Any]]:
    """Per column: name, type, number of rows without a value, least and greatest value (None without any).

    Empty for a data source whose columns are not known. `content` must be verified.
    """
    table = DATA_SOURCES.get(segment_named(name).data_source)
    if table is None:
        return []
    rows = [row.split(FIELD_END) for row in content.decode().split("\x1e")[:-1]]
    return [column_view(table, place, [row[place] for row in rows]) for place in range(len(table.columns))]


def column_view(table: DemoTable, place: int, texts: list[str]) -> dict[str, Any]:
    column = table.columns[place]
    values = [value for text in texts if (value := column.read(text)) is not None]
    return {
        "name": column.name,
        "type": column.kind.value,
        "nulls": len(texts) - len(values),
        "min": min(values, default=None),
        "max": max(values, default=None),
    }
