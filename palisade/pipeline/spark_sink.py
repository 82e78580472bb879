"""Writers of the Spark data source: a task checks its rows and keeps or stages them; the driver publishes the batch.

Spark commits one message per partition. The message of a retried or speculative attempt is dropped, and its staged rows
are never published.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage

from palisade.metastore.limits import Limits
from palisade.pipeline.cluster import connect
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.large_batch import abandon
from palisade.pipeline.options import ClusterAccess, WriteTarget, access_of, target_of
from palisade.pipeline.publishing import Publication
from palisade.pipeline.query_record import BatchName
from palisade.pipeline.task_rows import StageName, TaskRows, collecting
from palisade.pipeline.worker_memory import freeze_modules

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class QueryBatch:
    query: str
    batch: int


class TaskMessage(WriterCommitMessage):
    """`token`: of the sink that the task had, which names the stage of the batch."""

    def __init__(self, rows: TaskRows, query: str, token: str) -> None:
        self.rows, self.query, self.token = rows, query, token


class Sink:
    """Made in the driver and pickled for the tasks, so these have the same token. The commit of a stream has a sink of
    its own."""

    def __init__(self, options: Mapping[str, str], overwrite: bool, *, stream: bool) -> None:
        self._access: ClusterAccess = access_of(options)
        self._target: WriteTarget = target_of(options, overwrite, stream=stream)
        self._token = secrets.token_hex(8)

    def collect(self, iterator: Iterator[Any], *, streaming: bool) -> TaskMessage:
        freeze_modules()
        context = TaskContext.get()
        if context is None:
            raise PipelineError("Spark gave the writer no task context")
        found = None
        if streaming:
            query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
            if not query or not batch:
                raise PipelineError("Spark gave the tasks of this batch no id of their query: nothing was written")
            found = QueryBatch(query, int(batch))
        attempt = f"{context.partitionId():05d}-{context.taskAttemptId()}"
        with collecting(self._target, Limits(), lambda: connect(self._access), self._stage(found), attempt) as rows:
            for row in iterator:
                rows.add(row.asDict(recursive=True))
            return TaskMessage(rows.finish(), found.query if found else "", self._token)

    def publish(self, messages: list[Any], batch: int | None) -> None:
        """Spark runs a task for a batch without partitions too, so each batch of a query has its record."""
        freeze_modules()
        found = [message for message in messages if message is not None]
        if not found:
            return
        query = self._of_messages(found, batch)
        with connect(self._access) as client:
            name = self._named(client, query) if query else None
            publication = Publication(client, self._target, Limits(), self._stage(query), name)
            publication.publish([message.rows for message in found])

    def abandon(self, messages: list[Any], batch: int | None) -> None:
        """Removes what tasks have staged; without a message of a query, it is swept later."""
        found = [message for message in messages if message is not None]
        if not any(message.rows.staged for message in found):
            return
        query = self._of_messages(found, batch)
        with connect(self._access) as client:
            abandon(client, self._stage(query).name)

    def _of_messages(self, messages: list[TaskMessage], batch: int | None) -> QueryBatch | None:
        """Raises PipelineError if they are not of one batch."""
        names = {(message.query, message.token) for message in messages}
        if len(names) != 1:
            raise PipelineError(f"Spark gave messages of {len(names)} batches at once: nothing was written")
        ((query, self._token),) = names
        return None if batch is None else QueryBatch(query, batch)

    def _stage(self, query: QueryBatch | None) -> StageName:
        if query is None:
            return StageName(self._token, f"{self._target.rejects}{self._token}/".encode())
        rejects = f"{self._target.rejects}{query.query}/{query.batch}/"
        return StageName(f"{self._token}-{query.batch}", rejects.encode())

    def _named(self, client: Any, query: QueryBatch) -> BatchName:
        key = f"{self._target.records}{query.query}".encode()
        return BatchName(query.query, query.batch, client.scan_counts(key, key + b"\0").lineage)


class BatchSink(DataSourceWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        return self._sink.collect(iterator, streaming=False)

    def commit(self, messages: list[Any]) -> None:
        self._sink.publish(messages, None)

    def abort(self, messages: list[Any]) -> None:
        self._sink.abandon(messages, None)


class StreamSink(DataSourceStreamWriter):
    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[Any]) -> TaskMessage:
        return self._sink.collect(iterator, streaming=True)

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - the name is Spark's
        self._sink.publish(messages, batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - the name is Spark's
        self._sink.abandon(messages, batchId)
