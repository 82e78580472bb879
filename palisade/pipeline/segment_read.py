"""A read of a table: its segments, and their rows in the columns of the read. Pure.

A read has every segment of one answer of the broker, or fails with the list of those that are missing. The rows of a
segment never change, so the answer remains valid while copies move.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from palisade.base.counted import counted
from palisade.catalog.parquet_rows import columns_of
from palisade.catalog.rows_digest import ColumnType
from palisade.client.segment_query import check_whole
from palisade.pipeline.errors import BadOption, BadValue, PipelineError

_ARROW = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnType.DATE: pa.date32(),
    ColumnType.BINARY: pa.binary(),
}
"""Decimals keep their own type."""


class TableUnavailable(PipelineError):
    """Segments of the interval cannot be read now. `segments` and the text have all of them."""

    code = "unavailable"
    retry = True

    def __init__(self, segments: Iterable[str], reason: str = "") -> None:
        self.segments = sorted(segments)
        names = "\n".join(self.segments)
        super().__init__(f"UNAVAILABLE: {counted(len(self.segments), 'segment')}{reason and f' ({reason})'}:\n{names}")


@dataclass(frozen=True, slots=True)
class ReadableSegment:
    """`nodes`: those that served the segment when the broker answered. `url`: of its file; may be empty."""

    segment: str
    digest: str
    rows: int
    url: str
    nodes: tuple[str, ...]


def parts_of(found: Mapping[str, Any]) -> list[ReadableSegment]:
    """`found`: the result of `segment_query.lookup_all`. Raises TableUnavailable, CutSegment."""
    check_whole(found["segments"])
    records: Mapping[str, Mapping[str, Any]] = found["records"]
    served = {each["segment"]: tuple(each["nodes"]) for each in found["segments"]}
    nodes = served | {name: () for name in found["unserved"] if records.get(name, {}).get("url")}
    lacking = [name for name in (*served, *found["unserved"]) if name not in nodes or not _digest(records, name)]
    if lacking := [*found["missing"], *found["loading"], *lacking]:
        raise TableUnavailable(set(lacking))
    return [
        ReadableSegment(name, records[name]["digest"], records[name]["rows"], records[name].get("url", ""), nodes[name])
        for name in sorted(nodes)
    ]


def _digest(records: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Empty if there is no record, or the segment still grows."""
    return str(records.get(name, {}).get("digest", ""))


def schema_of(rows: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    """The columns of a read: those of a segment, or `columns` of them. Numbers have 64 bits. Raises BadOption."""
    kinds = dict(columns_of(rows))
    if unknown := [name for name in columns if name not in kinds]:
        raise BadOption(f"option columns: the table has no column {unknown[0]!r}; it has {', '.join(kinds)}")
    names = columns or rows.names
    return pa.schema([(name, _ARROW.get(kinds[name]) or rows.field(name).type) for name in names])


def fitted(table: pa.Table, schema: pa.Schema, segment: str, chosen: bool) -> pa.Table:
    """The rows of a segment in the columns of the read; null where the segment has no such column. `chosen`: other
    columns of the segment are omitted. Raises BadValue."""
    more = [] if chosen else [name for name in table.schema.names if name not in schema.names]
    if more:
        raise BadValue(
            f"segment {segment} has the column {more[0]!r}, which the newest segment of the interval does not have: "
            "give the columns to read as option columns"
        )
    try:
        found = [
            table.column(field.name).cast(field.type)
            if field.name in table.schema.names
            else pa.nulls(table.num_rows, field.type)
            for field in schema
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadValue(f"segment {segment} has values that do not fit the columns of the read: {error}") from error
    return pa.table(found, schema=schema)
