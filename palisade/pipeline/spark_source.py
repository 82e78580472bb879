"""The Spark data source `palisade`: batch and streaming reads; `spark_sink.py` has the writers.

`pushFilters` is not defined on purpose: Spark 4.3 shares one reader between scans of a DataFrame with different
filters, which returns wrong rows. Ranges and revisions are options instead.

Spark pickles the source after `schema()`, so what `schema()` chooses holds for every scan of the DataFrame: the
revision and its pin. Reader and partitions are made again for each scan.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from palisade.client.sync_client import SyncClient
from palisade.pipeline.batches import Columns
from palisade.pipeline.cluster import Pinned, connect, count, current, fix, pages
from palisade.pipeline.errors import BadOption
from palisade.pipeline.offsets import Offset, next_end, offset_of, start_of
from palisade.pipeline.options import ReadOptions, read_options, stream_options
from palisade.pipeline.partitions import Part, count_of_parts, parts_of_history, parts_of_state
from palisade.pipeline.sink_rows import check_columns
from palisade.pipeline.spark_sink import BatchSink, Sink, StreamSink

STREAM = "startingRevision"
"""The option that a stream has and no other read."""
NUMBERS = "create_revision BIGINT, version BIGINT, lease BIGINT"
CHANGE = "timestamp TIMESTAMP, op STRING"


def columns_of(options: ReadOptions, *, changes: bool) -> str:
    """The Spark schema, as DDL."""
    form = options.format
    value = f"STRUCT<{form.schema}>" if form.schema else form.value_type.upper()
    found = [f"key {form.key_type.upper()}, value {value}, revision BIGINT"]
    found += [f"sub BIGINT, {NUMBERS}, {CHANGE}, previous_value {value}"] if changes else [NUMBERS]
    return ", ".join([*found, *(["rejected BINARY"] if form.schema and not form.failfast else [])])


class PartOfRead(InputPartition):
    def __init__(self, part: Part, pinned: Pinned) -> None:
        self.part, self.pinned = part, pinned


class PalisadeSource(DataSource):
    """`spark.read.format("palisade")` and `spark.readStream.format("palisade")`; docs/pipeline.md has the options."""

    pinned: Pinned | None = None

    @classmethod
    def name(cls) -> str:
        return "palisade"

    def schema(self) -> str:
        options = read_options(self.options)
        if STREAM not in self.options:
            with connect(options.access) as client:
                self.pinned = fix(client, options, secrets.token_hex(8))
        return columns_of(options, changes=options.history or STREAM in self.options)

    def reader(self, schema: Any) -> ScanReader:
        if STREAM in self.options:
            raise BadOption(f"option {STREAM} is for spark.readStream: use revision, or history and fromRevision")
        if self.pinned is None:
            raise BadOption("omit .schema(): give the fields of JSON values as option valueSchema")
        return ScanReader(read_options(self.options), self.pinned, to_arrow_schema(schema, timezone="UTC"))

    def writer(self, schema: Any, overwrite: bool) -> BatchSink:
        check_columns(schema.fieldNames())
        return BatchSink(Sink(self.options, overwrite))

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamSink:  # noqa: N802
        check_columns(schema.fieldNames())
        return StreamSink(Sink(self.options, overwrite))

    def streamReader(self, schema: Any) -> ChangeStream:  # noqa: N802 - the name is Spark's
        if STREAM not in self.options:
            raise BadOption(f"option {STREAM} is missing: give earliest, latest or the first revision to read")
        return ChangeStream(self.options, to_arrow_schema(schema, timezone="UTC"))


class ScanReader(DataSourceReader):
    def __init__(self, options: ReadOptions, pinned: Pinned, schema: pa.Schema) -> None:
        self._options, self._pinned, self._schema = options, pinned, schema

    def partitions(self) -> Sequence[PartOfRead]:
        options, pinned = self._options, self._pinned
        bounds, endpoints = (options.key, options.range_end), options.access.endpoints
        if options.history:
            parts = count_of_parts(pinned.revision - pinned.oldest + 1, options.partitions, options.partition_rows)
            found = parts_of_history(bounds, pinned.oldest, pinned.revision, parts, endpoints)
        else:
            with connect(options.access) as client:
                counts = count(client, options, pinned)
            parts = count_of_parts(counts.keys, options.partitions, options.partition_rows)
            found = parts_of_state(bounds, pinned.revision, counts.samples, parts, endpoints)
        return [PartOfRead(part, pinned) for part in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(self._options, partition, self._schema)


def batches_of(options: ReadOptions, partition: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    columns = Columns(schema, options.format.value_type, options.format.failfast)
    convert = columns.of_changes if partition.part.first else columns.of_rows
    yield from (convert(page) for page in pages(options, partition.pinned, partition.part) if page)


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """An offset is the last revision that was read, with the lineage it belongs to."""

    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._options, self._stream = read_options(options), stream_options(options)
        self._schema = schema
        self._client: SyncClient | None = None
        self._until: int | None = None
        self._name = secrets.token_hex(8)
        self._pins: dict[int, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        here = current(self._connected(), self._options)
        return start_of(self._stream.start, here).as_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        here = current(self._connected(), self._options)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_end(offset_of(start), here, rows_max, self._until).as_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._stream.rows_max) if self._stream.rows_max else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        here = current(self._connected(), self._options)
        return Offset(here.revision, here.lineage).as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = current(self._connected(), self._options).revision

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[PartOfRead]:
        first, last = offset_of(start).revision + 1, offset_of(end).revision
        if first > last:
            return []
        options, client = self._options, self._connected()
        pinned = Pinned(f"{self._name}-{last}", last, first, offset_of(end).lineage)
        client.pin(options.key, options.range_end, pinned.name, first, options.pin_ms)
        self._pins[last] = pinned.name
        parts = count_of_parts(last - first + 1, options.partitions, options.partition_rows)
        bounds = options.key, options.range_end
        return [
            PartOfRead(part, pinned) for part in parts_of_history(bounds, first, last, parts, options.access.endpoints)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches_of(self._options, partition, self._schema)

    def commit(self, end: dict[str, Any]) -> None:
        done = [last for last in self._pins if last <= offset_of(end).revision]
        for last in done:
            self._connected().unpin(self._options.key, self._options.range_end, self._pins.pop(last))

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()

    def _connected(self) -> SyncClient:
        if self._client is None:
            self._client = connect(self._options.access)
        return self._client
