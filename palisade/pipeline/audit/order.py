"""Checks times and revisions of all operations: their order, and periods in which nothing succeeded. Pure.

The order by revision covers operations of several keys, transactions and ranges: each has taken effect at its revision.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from palisade.pipeline.audit.acts import OperationRow
from palisade.pipeline.audit.findings import Finding, FindingKind

FINDINGS_MAX = 100
GAPS_MAX = 1_000
NS_PER_MS = 1_000_000


class Times(NamedTuple):
    """Columns, one element for each operation. `completed_ns` is `key_history.NEVER` without a response; `writes`: it
    is a write; `made`: it made its revision. `ordered`: it promises real time, succeeded, and has a revision."""

    invoked_ns: Any
    completed_ns: Any
    wall_ms: Any
    revision: Any
    writes: Any
    made: Any
    ordered: Any
    ok: Any
    operation: Any


def times_of(rows: Sequence[OperationRow]) -> Times:
    def column(name: str, kind: Any) -> Any:
        return np.array([getattr(row, name) for row in rows], dtype=kind)

    numbers = (column(name, np.int64) for name in ("invoked_ns", "completed_ns", "wall_ms", "revision"))
    flags = (column(name, bool) for name in ("writes", "made", "ordered", "ok"))
    return Times._make((*numbers, *flags, column("operation", object)))


class Gap(NamedTuple):
    """No request succeeded between two moments, although `requests` were made or waited."""

    what: str
    from_ns: int
    until_ns: int
    from_wall_ms: int
    requests: int

    @property
    def length_ms(self) -> int:
        return (self.until_ns - self.from_ns) // NS_PER_MS


def out_of_order(times: Times) -> Iterator[Finding]:
    """Operations whose revision is below that of one that had completed before they began; writes also if it is the
    same revision."""
    chosen = np.flatnonzero(times.ordered)
    if not len(chosen):
        return
    by_end = chosen[np.argsort(times.completed_ns[chosen], kind="stable")]
    ends, highest = times.completed_ns[by_end], np.maximum.accumulate(times.revision[by_end])
    before = np.searchsorted(ends, times.invoked_ns[chosen], side="left")
    floor = np.where(before > 0, highest[before - 1], 0)
    is_low = times.revision[chosen] < floor + times.made[chosen]
    low, floors = chosen[is_low][:FINDINGS_MAX].tolist(), floor[is_low][:FINDINGS_MAX].tolist()
    for place, required in zip(low, floors, strict=True):
        revision = int(times.revision[place])
        text = f"it has revision {revision}; before it began, an operation had completed with revision {required}"
        yield Finding(
            FindingKind.ORDER.value, b"", revision, str(times.operation[place]), int(times.wall_ms[place]), text
        )


def gaps(times: Times, limit_ms: int, *, writes: bool) -> list[Gap]:
    """Intervals longer than the limit in which requests were under way or failed, and none succeeded. The longest
    first. Reads and writes are separate: each may fail alone."""
    mine = times.writes if writes else ~times.writes
    good, all_ = np.flatnonzero(mine & times.ok), np.flatnonzero(mine)
    if not len(all_):
        return []
    finished = times.completed_ns[all_]
    last = int(max(times.invoked_ns[all_].max(), finished[finished < 1 << 62].max(initial=0)))
    edges = np.concatenate(([times.invoked_ns[all_].min()], np.sort(times.completed_ns[good]), [last]))
    long = np.flatnonzero(np.diff(edges) > limit_ms * NS_PER_MS)[:GAPS_MAX]
    found = [_demanded(times, all_, int(edges[place]), int(edges[place + 1]), writes) for place in long.tolist()]
    return sorted((each for each in found if each and each.length_ms > limit_ms), key=lambda gap: -gap.length_ms)


def _demanded(times: Times, all_: Any, start: int, end: int, writes: bool) -> Gap | None:
    """The part of an interval without success in which requests were made."""
    invoked, completed = times.invoked_ns[all_], times.completed_ns[all_]
    inside = (completed > start) & (invoked < end)
    if not inside.any():
        return None
    begin = max(start, int(invoked[inside].min()))
    wall_ms = int(times.wall_ms[all_][inside][0] - (int(invoked[inside][0]) - begin) // NS_PER_MS)
    return Gap("writes" if writes else "reads", begin, end, wall_ms, int(inside.sum()))


def gap_findings(found: list[Gap]) -> list[Finding]:
    return [
        Finding(
            FindingKind.GAP.value, b"", 0, "", gap.from_wall_ms,
            f"no {gap.what[:-1]} succeeded for {gap.length_ms} ms, {gap.requests} were requested or waited",
        )
        for gap in found[:FINDINGS_MAX]
    ]  # fmt: skip
