"""The Spark data source `palisade`, and its batch reads; `spark_stream.py` has the stream, `spark_sink.py` the writers.

`pushFilters` is not defined on purpose: Spark 4.3 shares one reader between scans of a DataFrame with different
filters, which returns wrong rows. Ranges and revisions are options instead.

Spark pickles the source after `schema()`, so what `schema()` chooses holds for every scan of the DataFrame: the
revision and its pin. Reader and partitions are made again for each scan.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from palisade.pipeline.cluster import Pinned, connect, count, fix
from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import STREAM, ReadOptions, read_options, table_options
from palisade.pipeline.partitions import count_of_parts, parts_of_history, parts_of_state
from palisade.pipeline.plain_refusals import plain_refusals
from palisade.pipeline.read_columns import schema_of
from palisade.pipeline.sink_rows import check_columns
from palisade.pipeline.spark_parts import PartOfRead, batches_of
from palisade.pipeline.spark_segments import TableRead, TableReader, find_table
from palisade.pipeline.spark_sink import BatchSink, Sink, StreamSink
from palisade.pipeline.spark_stream import ChangeStream
from palisade.pipeline.worker_memory import freeze_modules


class PalisadeSource(DataSource):
    """`spark.read.format("palisade")` and `spark.readStream.format("palisade")`; docs/pipeline.md has the options."""

    pinned: Pinned | None = None
    table: TableRead | None = None

    @classmethod
    def name(cls) -> str:
        return "palisade"

    @plain_refusals
    def schema(self) -> str | StructType:
        freeze_modules()
        table = table_options(self.options)
        if table is not None:
            self.table = find_table(table)
            return self.table.schema()
        options = read_options(self.options)
        columns = schema_of(options, stream=STREAM in self.options)
        if STREAM not in self.options:
            with connect(options.access) as client:
                self.pinned = fix(client, options, secrets.token_hex(8))
        return columns

    @plain_refusals
    def reader(self, schema: Any) -> DataSourceReader:
        if self.table is not None:
            return TableReader(self.table)
        if STREAM in self.options:
            raise BadOption(f"option {STREAM} is for spark.readStream: use revision, or history and fromRevision")
        options = read_options(self.options)
        if self.pinned is None:
            raise BadOption("omit .schema(): give fields of JSON values as option valueSchema, columns as columns")
        return ScanReader(options, self.pinned, to_arrow_schema(schema, timezone="UTC"))

    @plain_refusals
    def writer(self, schema: Any, overwrite: bool) -> BatchSink:
        check_columns(schema.fieldNames())
        return BatchSink(Sink(self.options, overwrite, stream=False))

    @plain_refusals
    def streamWriter(self, schema: Any, overwrite: bool) -> StreamSink:  # noqa: N802
        check_columns(schema.fieldNames())
        return StreamSink(Sink(self.options, overwrite, stream=True))

    @plain_refusals
    def streamReader(self, schema: Any) -> ChangeStream:  # noqa: N802 - the name is Spark's
        if STREAM not in self.options:
            raise BadOption(f"option {STREAM} is missing: give earliest, latest or the first revision to read")
        return ChangeStream(self.options, to_arrow_schema(schema, timezone="UTC"))


class ScanReader(DataSourceReader):
    def __init__(self, options: ReadOptions, pinned: Pinned, schema: pa.Schema) -> None:
        self._options, self._pinned, self._schema = options, pinned, schema

    @plain_refusals
    def partitions(self) -> Sequence[PartOfRead]:
        freeze_modules()
        options, pinned = self._options, self._pinned
        bounds, endpoints = (options.key, options.range_end), options.access.endpoints
        if options.history:
            parts = count_of_parts(pinned.revision - pinned.oldest + 1, options.partitions, options.partition_rows)
            found = parts_of_history(bounds, pinned.oldest, pinned.revision, parts, endpoints)
        else:
            with connect(options.access) as client:
                keys, samples = count(client, options, pinned)
            parts = count_of_parts(keys, options.partitions, options.partition_rows)
            found = parts_of_state(bounds, pinned.revision, samples, parts, endpoints)
        return [PartOfRead(part, pinned) for part in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(self._options, partition, self._schema)
