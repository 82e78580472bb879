"""The batch read of a table: one Spark partition for each segment.

The broker is queried once, at `load()`. The answer and the columns are pickled with the source, so every scan of the
DataFrame reads the same segments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from palisade.client.segment_query import lookup_all
from palisade.client.sync_api import blocking
from palisade.pipeline.cluster import connect
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.options import TableOptions
from palisade.pipeline.segment_fetch import fetch
from palisade.pipeline.segment_read import ReadableSegment, fitted, parts_of, schema_of
from palisade.pipeline.worker_memory import freeze_modules

_lookup = blocking(lookup_all)


class NoSegments(PipelineError):
    """The interval has no segment, so the columns of the table are unknown."""

    code = "no-segments"


@dataclass(frozen=True, slots=True)
class TableRead:
    """The result of `load()`: the segments at one revision, and the columns of the read."""

    options: TableOptions
    parts: tuple[ReadableSegment, ...]
    columns: pa.Schema

    def schema(self) -> StructType:
        return from_arrow_schema(self.columns, prefer_timestamp_ntz=False)


class PartOfTable(InputPartition):
    def __init__(self, part: ReadableSegment) -> None:
        self.part = part


def find_table(options: TableOptions) -> TableRead:
    """Raises TableUnavailable with all segments that cannot be read, NoSegments, BadOption."""
    with connect(options.access) as client:
        parts = parts_of(_lookup(client, options.table, *options.interval))
    if not parts:
        raise NoSegments(f"data source {options.table} has no segment from {' to '.join(options.interval)}")
    newest = fetch(parts[-1], options.access)
    return TableRead(options, tuple(parts), schema_of(newest.schema, options.columns))


class TableReader(DataSourceReader):
    def __init__(self, read: TableRead) -> None:
        self._read = read

    def partitions(self) -> Sequence[PartOfTable]:
        return [PartOfTable(part) for part in self._read.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        freeze_modules()
        part: ReadableSegment = partition.part
        options = self._read.options
        table = fetch(part, options.access)
        yield from fitted(table, self._read.columns, part.segment, bool(options.columns)).to_batches()
