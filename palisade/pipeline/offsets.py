"""Offsets of a stream: the last revision that was read, and the lineage that it belongs to. Pure.

Revisions of another cluster, or of a generation before a restore, mean other changes: a checkpoint with another lineage
is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palisade.metastore.lineage import Lineage
from palisade.pipeline.errors import PipelineError, RevisionGone


class OtherLineage(PipelineError):
    """The checkpoint belongs to another cluster, or to the time before a restore."""


@dataclass(frozen=True, slots=True)
class Here:
    """The cluster now: its newest and its oldest retained revision."""

    revision: int
    minimal_revision: int
    lineage: Lineage


@dataclass(frozen=True, slots=True)
class Offset:
    revision: int
    lineage: Lineage

    def as_json(self) -> dict[str, Any]:
        return {
            "revision": self.revision,
            "cluster_id": self.lineage.cluster_id,
            "generation": self.lineage.generation,
        }


def offset_of(stored: dict[str, Any]) -> Offset:
    return Offset(stored["revision"], Lineage(stored["cluster_id"], stored["generation"]))


def start_of(start: str | int, here: Here) -> Offset:
    """`start`: "earliest", "latest" or the first revision to read."""
    if start == "latest":
        return Offset(here.revision, here.lineage)
    first = here.minimal_revision if isinstance(start, str) else start
    return Offset(first - 1, here.lineage)


def next_end(start: Offset, here: Here, rows_max: int | None, until: int | None) -> Offset:
    """The end of the next micro-batch, which has at most `rows_max` revisions and ends at `until`, if they are given.

    Raises OtherLineage; RevisionGone if the next revision was compacted.
    """
    if start.lineage != here.lineage:
        raise OtherLineage(
            f"the checkpoint belongs to generation {start.lineage.generation} of cluster {start.lineage.cluster_id!r}; "
            f"this is generation {here.lineage.generation} of {here.lineage.cluster_id!r}: start with a new checkpoint"
        )
    if start.revision < here.revision and start.revision + 1 < here.minimal_revision:
        raise RevisionGone(
            f"the stream continues at revision {start.revision + 1}, which was compacted; the oldest that can be read "
            f"is {here.minimal_revision}: read the state with spark.read, then start with a new checkpoint"
        )
    ends = [here.revision]
    ends += [start.revision + rows_max] if rows_max is not None else []
    ends += [until] if until is not None else []
    return Offset(max(start.revision, min(ends)), start.lineage)
