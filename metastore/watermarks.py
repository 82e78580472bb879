"""How far archives have read the history: automatic compaction stays below them, up to a bound.

A watermark is an ordinary key, `pipeline/watermarks/NAME`, written by a job that archives the change feed. Its value is
JSON with `revision`, the last archived revision, and the lineage that the revision belongs to. Unlike a pin it does not
expire, so an archive that runs once a day misses nothing. A job that never runs again must not stop compaction forever,
so a watermark holds back at most `hold_revisions` revisions, and nothing while the store is fuller than
`HOLD_PERCENT` of its quota. An explicit compaction is never held back.

Only the leader's proposals depend on watermarks (`housekeeping.py`), so a malformed one cannot make replicas differ: it
holds nothing back.
"""

from __future__ import annotations

import json
from itertools import islice

from palisade.metastore.lineage import Lineage
from palisade.metastore.mvcc import found_in
from palisade.metastore.ordered_map import OrderedMap, Table

PREFIX = b"pipeline/watermarks/"
PREFIX_END = b"pipeline/watermarks0"
VALUE_BYTES_MAX, WATERMARKS_MAX = 1_000, 1_000
"""The leader reads them ten times a second while compaction is due: further and longer ones hold nothing back."""
HOLD_PERCENT = 80
"""Held history must not fill the store: above this part of the quota, retention alone decides."""


def watermark_value(revision: int, lineage: Lineage) -> str:
    found = {"revision": revision, "cluster_id": lineage.cluster_id, "generation": lineage.generation}
    return json.dumps(found)


def watermark_of(value: bytes, lineage: Lineage) -> int | None:
    """The last archived revision; None if it belongs to another lineage or is malformed."""
    if len(value) > VALUE_BYTES_MAX:
        return None
    try:
        found = json.loads(value)
        revision, theirs = found["revision"], Lineage(found["cluster_id"], found["generation"])
    except (ValueError, KeyError, TypeError):
        return None
    return revision if type(revision) is int and revision >= 0 and theirs == lineage else None


def lowest_watermark(tables: OrderedMap, lineage: Lineage) -> int | None:
    """The lowest watermark of all archives of this history; None without one."""
    found = [
        watermark_of(each.value, lineage)
        for key, row in islice(tables.scan(Table.KEY, PREFIX, PREFIX_END), WATERMARKS_MAX)
        if (each := found_in(key, row)) is not None
    ]
    return min((each for each in found if each is not None), default=None)


def held(target: int, oldest: int, floor: int, step: int, watermark: int | None) -> int:
    """The compaction target, held back by a watermark. Pure.

    `oldest`: MM. `floor`: the bound releases what is below, in steps of `step`. MM stays at the watermark or below, so
    the state there and the changes after it stay readable.
    """
    if watermark is None or target <= oldest:
        return target
    released = floor if floor - oldest >= step else oldest
    return min(target, max(watermark, released))
