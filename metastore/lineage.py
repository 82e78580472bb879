"""The history that a state belongs to: the id of its cluster, and the *generation*, which every break of history
raises.

A break is a change outside the log: a backup is restored, or a new cluster is forced from a minority. Acknowledged
writes may be lost by it, so a copy of the earlier state (a node's vault, a cache) must not be taken for a part of the
later one. Every copy therefore stores the lineage and compares both numbers.

Both are replicated state: a record in META, changed only by the log (or by a restore, before there is a log). The first
leader chooses the id at random, so two clusters of the same name differ. The generation never falls. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgpack

from palisade.metastore.errors import StoreCorrupt

LINEAGE_KEY = b"lineage"
"""In META: [cluster id, generation]."""
LINEAGE_BOUNDS = (LINEAGE_KEY, LINEAGE_KEY + b"\0")
FIRST_GENERATION, GENERATION_MAX = 1, 2**53
"""Every JSON reader represents them exactly."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """`cluster_id` is empty until the first leader has chosen one."""

    cluster_id: str
    generation: int


NOT_FOUNDED = Lineage("", FIRST_GENERATION)


def encode_lineage(lineage: Lineage) -> bytes:
    packed: bytes = msgpack.packb([lineage.cluster_id, lineage.generation])
    return packed


def decode_lineage(stored: bytes | None) -> Lineage:
    """A store without the record never had a leader. Raises StoreCorrupt."""
    if stored is None:
        return NOT_FOUNDED
    try:
        cluster_id, generation = msgpack.unpackb(stored)
    except (ValueError, TypeError, msgpack.UnpackException):
        cluster_id, generation = None, None
    if type(cluster_id) is not str or type(generation) is not int or generation < FIRST_GENERATION:
        raise StoreCorrupt(
            f"the record of the store's lineage is malformed: {stored[:64]!r}. Let the node join again with an empty "
            "data directory, or restore a backup"
        )
    return Lineage(cluster_id, generation)
