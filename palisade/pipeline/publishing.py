"""Publishes a batch: all of its rows, or none.

A batch that fits one transaction is published by it; a larger one as `large_batch.py` describes. A streaming query
publishes each batch exactly once: the transaction that decides also writes the record of the query and compares that it
has not changed since it was read (`query_record.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palisade.client.operations import Compare, Delete, Operation, Put
from palisade.client.sync_client import SyncClient
from palisade.metastore import requests
from palisade.metastore.limits import Limits
from palisade.metastore.requests import FROM_KEY, CompareResult, CompareTarget, prefix_end
from palisade.metastore.staged_rows import rows_of_chunk
from palisade.pipeline.batch_run import run_steps
from palisade.pipeline.batch_steps import REJECTS, ROWS, TRIES, Contended, alive_key, closed_since, finish_overlapping
from palisade.pipeline.large_batch import LargeBatch, abandon
from palisade.pipeline.options import WriteTarget
from palisade.pipeline.query_record import BatchName, QueryRecord
from palisade.pipeline.sink_rows import BatchRows, Reject, RowWrite, fits, refuse
from palisade.pipeline.staging import Staged, page_of
from palisade.pipeline.task_rows import StageName, TaskRows
from palisade.wire.batch_records import KeySpan


@dataclass(frozen=True, slots=True)
class Publication:
    """`query` None: a batch without a query. `stage`: where its tasks have staged rows, if there were many."""

    client: SyncClient
    target: WriteTarget
    limits: Limits
    stage: StageName
    query: BatchName | None = None

    def publish(self, parts: Sequence[TaskRows]) -> int | None:
        """The revision; None if the batch was published before.

        Raises RowsRejected, BatchTooLarge, StageLost, Contended, OtherLineage: nothing was written.
        """
        try:
            revision = self._publish(parts)
        except Exception:
            abandon(self.client, self.stage.name)
            raise
        if any(part.staged for part in parts):
            abandon(self.client, self.stage.name)
        return revision

    def _publish(self, parts: Sequence[TaskRows]) -> int | None:
        rejected = sum(part.rejected for part in parts)
        first = next((part.first_reject for part in parts if part.first_reject), None)
        if first is not None and not self.target.rejects:
            raise refuse(rejected, first)
        if self.query is not None and self._record().has(self.query):
            run_steps(self.client, finish_overlapping([self._span]))
            return None
        if self._fits(parts, rejected):
            return self._in_one_transaction(parts)
        large = LargeBatch(self.client, self.target, self.limits, self.stage, self.query, self._record_key)
        return large.publish(parts)

    def _fits(self, parts: Sequence[TaskRows], rejected: int) -> bool:
        """One operation is reserved for the record of the query."""
        operations = sum(part.count for part in parts) + rejected
        if not fits(operations, sum(part.bytes for part in parts), self.limits):
            return False
        if self.target.overwrite:
            operations += self.client.range(self.target.prefix, prefix=True, count_only=True).count
        return operations < self.limits.txn_operations_max

    @property
    def _span(self) -> KeySpan:
        prefix = self.target.prefix
        return KeySpan(prefix or FROM_KEY, prefix_end(prefix))

    @property
    def _record_key(self) -> bytes:
        return b"" if self.query is None else f"{self.target.records}{self.query.query}".encode()

    def _record(self) -> QueryRecord:
        found = self.client.get(self._record_key)
        return QueryRecord.of(self._record_key, [found] if found else [])

    def _in_one_transaction(self, parts: Sequence[TaskRows]) -> int | None:
        rows, staged = self._gathered(parts)
        if rows.rejects and not self.target.rejects:
            raise refuse(len(rows.rejects), rows.rejects[0])
        for _ in range(TRIES):
            compares: list[requests.Compare] = [Compare.created_at(alive_key(self.stage.name), each) for each in staged]
            operations: list[Operation] = [
                Delete(write.key) if write.value is None else Put(write.key, write.value) for write in rows.writes
            ]
            operations += self._rejects(rows.rejects)
            if self.query is not None:
                record = self._record()
                if record.has(self.query):
                    return None
                record.check(self.query)
                compares.append(Compare.revision_is(self._record_key, record.revision))
                operations.append(Put(self._record_key, record.after(self.query)))
            if self.target.overwrite or any(write.value is None for write in rows.writes):
                compares.append(closed_since(run_steps(self.client, finish_overlapping([self._span]))))
            if self.target.overwrite:
                self._replace_prefix(rows, compares, operations)
            result = self.client.txn(compares, operations)
            if result.succeeded:
                return result.revision
        raise Contended(f"other writers changed the keys {TRIES} times; nothing was written: try again")

    def _gathered(self, parts: Sequence[TaskRows]) -> tuple[BatchRows, set[int]]:
        """All rows, including those that tasks have staged, and the alive keys on which the staged ones depend."""
        rows, staged = BatchRows(self.limits), [part.staged for part in parts if part.staged]
        writes = [write for part in parts for write in part.writes]
        for each in staged:
            writes += [RowWrite(*row) for row in self._rows(each, ROWS, each.chunks)]
        rejects = [reject for part in parts for reject in part.rejects]
        for each in staged:
            rejects += [Reject.of(value or b"") for _, value in self._rows(each, REJECTS, each.rejects)]
        rows.merge(writes, rejects)
        return rows, {each.alive for each in staged}

    def _rows(self, staged: Staged, kind: bytes, chunks: int) -> list[tuple[bytes, bytes | None]]:
        pages = (page_of(self.client, self.stage.name, kind, staged.attempt, number) for number in range(chunks))
        return [row for page in pages for row in rows_of_chunk(page)]

    def _rejects(self, rejects: Sequence[Reject]) -> list[Operation]:
        return [Put(self.stage.rejects + b"%06d" % number, reject.value) for number, reject in enumerate(rejects)]

    def _replace_prefix(self, rows: BatchRows, compares: list[requests.Compare], operations: list[Operation]) -> None:
        """Deletes the other keys of the prefix; holds only if none of them has changed since they were read."""
        prefix = self.target.prefix
        old = self.client.range(prefix, prefix=True, keys_only=True)
        kept = {write.key for write in rows.writes}
        operations += [Delete(kv.key) for kv in old.kvs if kv.key not in kept]
        compares.append(Compare(prefix, CompareTarget.MOD, CompareResult.LESS, old.revision + 1, prefix_end(prefix)))
