"""Offsets of a stream: the last revision that was read, and the lineage that it belongs to. Pure.

Revisions of another cluster, or of a generation before a restore, mean other changes: a checkpoint with another lineage
is refused.

A batch has the changes after its start up to its end. If compaction has removed some of them, the stream ends, or the
batch is the state at its end instead. The end offset records that, because Spark plans a batch again from its two
offsets after a restart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palisade.metastore.lineage import Lineage
from palisade.pipeline.cuts import cut_after, cut_before
from palisade.pipeline.errors import PipelineError, RevisionGone
from palisade.wire.batch_records import Window


class OtherLineage(PipelineError):
    """The checkpoint is of another cluster, or from before a restore."""


@dataclass(frozen=True, slots=True)
class Since:
    """A time, in milliseconds since 1970."""

    wall_ms: int


@dataclass(frozen=True, slots=True)
class Here:
    """The cluster now: its newest revision that no batch splits, and its oldest retained one.

    `windows`: of the batches in the range that is read (`cuts.py`). `open_batch`: it ends at an older revision because
    a later one has a part of a batch.
    """

    revision: int
    minimal_revision: int
    lineage: Lineage
    windows: tuple[Window, ...] = ()
    open_batch: bool = False


@dataclass(frozen=True, slots=True)
class Offset:
    """`snapshot`: whether the batch that ends here is the state at `revision`."""

    revision: int
    lineage: Lineage
    snapshot: bool = False

    def as_json(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "cluster_id": self.lineage.cluster_id,
            "generation": self.lineage.generation,
            **({"snapshot": True} if self.snapshot else {}),
        }


def offset_of(stored: dict[str, Any]) -> Offset:
    lineage = Lineage(stored["cluster_id"], stored["generation"])
    return Offset(stored["revision"], lineage, stored.get("snapshot", False))


def start_of(start: str | int, here: Here, *, snapshots: bool = False) -> Offset:
    """`start`: "earliest", "latest" or the first revision to read; within a batch, the stream begins with the whole
    batch. `snapshots`: the earliest revision is the first of all; if it was compacted, the stream begins with a
    snapshot."""
    if start == "latest":
        return Offset(here.revision, here.lineage)
    if isinstance(start, int):
        return Offset(cut_before(start - 1, here.windows), here.lineage)
    before = 0 if snapshots else here.minimal_revision - 1
    return Offset(cut_after(before, here.windows) or before, here.lineage)


def next_end(start: Offset, here: Here, rows_max: int | None, until: int | None, *, snapshots: bool = False) -> Offset:
    """The end of the next micro-batch, which has at most `rows_max` revisions and ends at `until`, if they are given.

    Raises OtherLineage; RevisionGone if the next revision was compacted, unless `snapshots`: then the batch is the
    newest state. `start` itself: there is nothing to read.
    """
    if start.lineage != here.lineage:
        raise OtherLineage(
            f"the checkpoint belongs to generation {start.lineage.generation} of cluster {start.lineage.cluster_id!r}; "
            f"this is generation {here.lineage.generation} of {here.lineage.cluster_id!r}: start with a new checkpoint"
        )
    if until is not None and start.revision >= until:
        return start
    if start.revision < here.revision and start.revision + 1 < here.minimal_revision:
        if snapshots:
            end = here.revision if until is None or until < here.minimal_revision else until
            return Offset(end, start.lineage, snapshot=True)
        raise gone(start.revision + 1, here.minimal_revision)
    ends = [here.revision]
    ends += [start.revision + rows_max] if rows_max is not None else []
    ends += [until] if until is not None else []
    end = whole_end(min(ends), here)
    return Offset(end, start.lineage) if end > start.revision else start


def whole_end(end: int, here: Here) -> int:
    """The end of a micro-batch that does not split a batch of the store: a later one, at most `here.revision`."""
    return cut_after(end, here.windows) or cut_before(end, here.windows)


def gone(first: int, oldest: int) -> RevisionGone:
    return RevisionGone(
        f"the stream continues at revision {first}, which was compacted; the oldest that can be read is {oldest}: read "
        "the state with spark.read and start with a new checkpoint, or give option onCompacted=snapshot"
    )
