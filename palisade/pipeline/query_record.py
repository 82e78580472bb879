"""The durable record of a streaming query: its last published batch, which each publication compares and writes. Pure.

Request ids are not sufficient for exactly-once queries: they are evicted, and a checkpoint may be replayed days later.
The record also has the lineage of the cluster. After a restore from a backup, or in another cluster, batches that the
checkpoint counts as published are missing, so the query is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from palisade.base.key_text import key_text
from palisade.metastore.lineage import Lineage
from palisade.metastore.results import KeyValue
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.offsets import OtherLineage

NO_BATCH = -1


class BadQueryRecord(PipelineError):
    """The record of the query is malformed: no writer has written it."""


@dataclass(frozen=True, slots=True)
class BatchName:
    """`query`: stable across restarts of a streaming query; the ids of its batches grow. `lineage`: of the cluster."""

    query: str
    batch: int
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """`batch` -1 and `revision` 0: there is none. `lineage` None: written by version 1, as the bare number."""

    key: bytes
    batch: int = NO_BATCH
    lineage: Lineage | None = None
    revision: int = 0

    @staticmethod
    def of(key: bytes, kvs: Sequence[KeyValue]) -> QueryRecord:
        """Raises BadQueryRecord."""
        if not kvs:
            return QueryRecord(key)
        try:
            found = json.loads(kvs[0].value)
            batch = found if type(found) is int else int(found["batch"])
            lineage = None if type(found) is int else Lineage(str(found["cluster_id"]), int(found["generation"]))
        except (ValueError, KeyError, TypeError):
            raise BadQueryRecord(
                f"the record {key_text(key)} of the query is malformed: write the number of its last batch, or delete "
                "it and start with a new checkpoint"
            ) from None
        return QueryRecord(key, batch, lineage, kvs[0].mod_revision)

    def has(self, name: BatchName) -> bool:
        """Whether the batch was published."""
        return self.batch >= name.batch

    def check(self, name: BatchName) -> None:
        """Raises OtherLineage for a checkpoint that belongs to another cluster or history."""
        same = self.lineage in (None, name.lineage)
        if name.batch == self.batch + 1 or (same and self.batch != NO_BATCH):
            return
        here = f"generation {name.lineage.generation} of cluster {name.lineage.cluster_id!r}"
        raise OtherLineage(
            f"batches {self.batch + 1} to {name.batch - 1} of query {name.query} are not in {here}: the checkpoint "
            "belongs to another cluster, or to the time before a restore. Start with a new checkpoint; or, if nothing "
            f"is missing, write {name.batch - 1} to the key {key_text(self.key)}"
        )

    def after(self, name: BatchName) -> bytes:
        found = {
            "batch": name.batch,
            "cluster_id": name.lineage.cluster_id,
            "generation": name.lineage.generation,
        }
        return json.dumps(found).encode()
