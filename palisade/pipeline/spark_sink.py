"""Writers of the Spark data source: a task checks its rows and hands them to the driver, which publishes the batch.

A batch fits one transaction, so its rows travel in the commit messages. What a task retry or a speculative duplicate
returns is dropped by Spark, which commits one message per partition.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from palisade.metastore.limits import Limits
from palisade.pipeline.cluster import connect
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.options import Access, Target, access_of, target_of
from palisade.pipeline.publishing import BatchName, publish
from palisade.pipeline.sink_rows import Rows

QUERY = "sql.streaming.queryId"


class TaskRows(WriterCommitMessage):
    def __init__(self, rows: Rows, query: str) -> None:
        self.rows, self.query = rows, query


class Sink:
    def __init__(self, options: Mapping[str, str], overwrite: bool) -> None:
        self._access: Access = access_of(options)
        self._target: Target = target_of(options, overwrite)

    def collect(self, iterator: Iterator[Any]) -> TaskRows:
        rows = Rows(self._target.prefix, Limits())
        for row in iterator:
            rows.add(row.asDict(recursive=True))
        context = TaskContext.get()
        return TaskRows(rows, (context.getLocalProperty(QUERY) if context else None) or "")

    def publish(self, messages: list[Any], batch: int | None) -> None:
        found = [message for message in messages if message is not None]
        rows = Rows(self._target.prefix, Limits())
        rows.merge(message.rows for message in found)
        name = None
        if batch is not None:
            queries = {message.query for message in found}
            if not found:
                return
            if len(queries) != 1 or "" in queries:
                raise PipelineError("Spark gave the tasks of this batch no id of their query: nothing was written")
            name = BatchName(queries.pop(), batch)
        with connect(self._access) as client:
            publish(client, self._target, rows, name, secrets.token_hex(8))


class BatchSink(DataSourceWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        return self._sink.collect(iterator)

    def commit(self, messages: list[Any]) -> None:
        self._sink.publish(messages, None)

    def abort(self, messages: list[Any]) -> None:
        """Nothing was written."""


class StreamSink(DataSourceStreamWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskRows:
        return self._sink.collect(iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - the name is Spark's
        self._sink.publish(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - the name is Spark's
        """Nothing was written."""
