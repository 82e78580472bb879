"""Publishes a batch in one transaction: all of its rows, or none.

A streaming query publishes each batch exactly once: the transaction also writes the record of the query, its last batch
id, and compares that the record has not changed since it was read. Request ids cannot do that: they are evicted, and a
checkpoint may be replayed days later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from palisade.client.operations import Compare, Delete, Operation, Put
from palisade.client.sync_client import SyncClient
from palisade.metastore import requests
from palisade.metastore.requests import CompareResult, CompareTarget, prefix_end
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.options import Target
from palisade.pipeline.sink_rows import BatchTooLarge, Rows, RowsRejected

TRIES = 5
"""Of an overwrite, or of a query that runs twice, whose keys change between read and write."""


class Contended(PipelineError):
    """Other writers changed the keys each time: nothing was written."""

    retry = True


@dataclass(frozen=True, slots=True)
class BatchName:
    """`query`: stable across restarts of a streaming query; the ids of its batches grow."""

    query: str
    batch: int


def publish(client: SyncClient, target: Target, rows: Rows, name: BatchName | None, token: str) -> int | None:
    """The revision; None if the batch was published before. `token` names the rejects of a batch without a name.

    Raises RowsRejected, BatchTooLarge, Contended: nothing was written.
    """
    if rows.rejects and not target.rejects:
        first = rows.rejects[0]
        raise RowsRejected(
            f"{len(rows.rejects)} rows cannot be written, the first is key {first.key!r}: {first.reason}; "
            "correct them, or give option rejectsPrefix"
        )
    for _ in range(TRIES):
        compares: list[requests.Compare] = []
        operations: list[Operation] = [
            Delete(write.key) if write.value is None else Put(write.key, write.value) for write in rows.writes
        ]
        operations += _rejects(target, rows, token if name is None else f"{name.query}/{name.batch}")
        if name is not None:
            record = f"{target.records}{name.query}"
            found = client.get(record)
            if found is not None and int(found.value) >= name.batch:
                return None
            compares.append(Compare.revision_is(record, found.mod_revision if found else 0))
            operations.append(Put(record, str(name.batch)))
        if target.overwrite:
            _replace_prefix(client, target, rows, compares, operations)
        if len(operations) > rows.limits.txn_operations_max:
            raise BatchTooLarge(
                f"replacing {target.prefix!r} takes {len(operations)} operations; the limit of one transaction is "
                f"{rows.limits.txn_operations_max}: delete the prefix first, or use append"
            )
        result = client.txn(compares, operations)
        if result.succeeded:
            return result.revision
    raise Contended(f"other writers changed the keys {TRIES} times; nothing was written: try again")


def _rejects(target: Target, rows: Rows, batch: str) -> list[Operation]:
    return [
        Put(f"{target.rejects}{batch}/{number:06d}", json.dumps({"key": reject.key, "reason": reject.reason}))
        for number, reject in enumerate(rows.rejects)
    ]


def _replace_prefix(
    client: SyncClient, target: Target, rows: Rows, compares: list[requests.Compare], operations: list[Operation]
) -> None:
    """Deletes the other keys of the prefix; holds only if none of them has changed since they were read."""
    old = client.range(target.prefix, prefix=True, keys_only=True)
    kept = {write.key for write in rows.writes}
    operations += [Delete(kv.key) for kv in old.kvs if kv.key not in kept]
    end = prefix_end(target.prefix)
    compares.append(Compare(target.prefix, CompareTarget.MOD, CompareResult.LESS, old.revision + 1, end))
