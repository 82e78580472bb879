"""The stream of the Spark data source: micro-batches of changes, and of the state where changes were compacted.

An offset is the last revision that was read, with the lineage it belongs to (`offsets.py`). Spark stores both offsets
of a batch before it plans the batch, and plans it again from them after a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import Compacted
from palisade.pipeline.cluster import PIN_TRIES, Pinned, connect, count, current
from palisade.pipeline.errors import RevisionGone
from palisade.pipeline.offsets import Offset, Since, gone, next_end, offset_of, start_of, whole_end
from palisade.pipeline.options import read_options, stream_options
from palisade.pipeline.partitions import count_of_parts, parts_of_history, parts_of_state
from palisade.pipeline.spark_parts import PartOfRead, ResetOfSnapshot, batches_of


class ChangeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: Mapping[str, str], schema: pa.Schema) -> None:
        self._options, self._stream = read_options(options), stream_options(options)
        self._schema = schema
        self._client: SyncClient | None = None
        self._until: int | None = None
        self._name = secrets.token_hex(8)
        self._pins: dict[int, str] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_client": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - the names are Spark's
        here = current(self._connected(), self._options)
        start = self._stream.start
        first = self._since(start) if isinstance(start, Since) else start
        return start_of(first, here, snapshots=self._stream.snapshots).as_json()

    def _since(self, time: Since) -> str | int:
        options = self._options
        try:
            return self._connected().scan_since(options.key, options.range_end, time.wall_ms)
        except Compacted as error:
            if self._stream.snapshots:
                return "earliest"
            raise RevisionGone(
                f"option startingRevision: {error}: start with earliest, or give onCompacted=snapshot"
            ) from error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        first, here = offset_of(start), current(self._connected(), self._options)
        rows_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        end = next_end(first, here, rows_max, self._until, snapshots=self._stream.snapshots)
        if rows_max is not None and self._stream.bytes_max and not end.snapshot:
            end = self._within_bytes(first, end)
            end = Offset(whole_end(end.revision, here), end.lineage)
        return end.as_json()

    def _within_bytes(self, start: Offset, end: Offset) -> Offset:
        """It reads changes that may have been compacted since: then planning the batch decides."""
        options, bytes_max = self._options, self._stream.bytes_max
        if end.revision <= start.revision + 1:
            return end
        bounds, first = (options.key, options.range_end), start.revision + 1
        try:
            last = self._connected().scan_bytes(*bounds, first, end.revision, end.lineage, bytes_max)
        except Compacted:
            return end
        return Offset(last, end.lineage)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._stream.rows_max) if self._stream.rows_max else ReadAllAvailable()

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        here = current(self._connected(), self._options)
        return Offset(here.revision, here.lineage).as_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._until = current(self._connected(), self._options).revision

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        first, until = offset_of(start).revision + 1, offset_of(end)
        if first > until.revision:
            return []
        if until.snapshot:
            return self._state(until)
        options = self._options
        pinned = Pinned(f"{self._name}-{until.revision}", until.revision, first, until.lineage)
        try:
            self._pin(pinned, until)
        except Compacted as error:
            if self._stream.snapshots:
                return self._state(until)
            raise gone(first, current(self._connected(), options).minimal_revision) from error
        parts = count_of_parts(until.revision - first + 1, options.partitions, options.partition_rows)
        bounds = options.key, options.range_end
        found = parts_of_history(bounds, first, until.revision, parts, options.access.endpoints)
        return [PartOfRead(part, pinned) for part in found]

    def _state(self, end: Offset) -> Sequence[InputPartition]:
        """The state at the end of the batch. If that was compacted, too, a newer one; the changes up to that may follow
        again in the next batch, which begins after `end`."""
        options, client, revision = self._options, self._connected(), end.revision
        for tries_left in reversed(range(PIN_TRIES)):
            pinned = Pinned(f"{self._name}-{end.revision}", revision, revision, end.lineage)
            try:
                self._pin(pinned, end)
                break
            except Compacted:
                if not tries_left:
                    raise
                revision = current(client, options).revision
        keys, samples = count(client, options, pinned)
        parts = count_of_parts(keys, options.partitions, options.partition_rows)
        bounds = options.key, options.range_end
        found = parts_of_state(bounds, revision, samples, parts, options.access.endpoints)
        return [ResetOfSnapshot(revision), *(PartOfRead(part, pinned, snapshot=True) for part in found)]

    def _pin(self, pinned: Pinned, end: Offset) -> None:
        options = self._options
        self._connected().pin(options.key, options.range_end, pinned.name, pinned.oldest, options.pin_ms)
        self._pins[end.revision] = pinned.name

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
