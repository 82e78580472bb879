"""Outcomes and latencies of operations per interval of time. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from palisade.pipeline.audit.order import NS_PER_MS, Times

INTERVALS_MAX = 600
WIDTHS_MS = (100, 250, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 3_600_000, 86_400_000)
NEVER = 1 << 62


class AuditInterval(NamedTuple):
    """Operations that ended, or without a response began, in it. Latencies of successful ones, NaN if there are none.
    `from_ms`: since the first operation."""

    from_ms: int
    wall_ms: int
    width_ms: int
    reads_ok: int
    writes_ok: int
    failed: int
    p50_ms: float
    p99_ms: float


def timeline(times: Times) -> list[AuditInterval]:
    """At most `INTERVALS_MAX` intervals of equal width."""
    if not len(times.invoked_ns):
        return []
    start = int(times.invoked_ns.min())
    at = np.where(times.completed_ns < NEVER, times.completed_ns, times.invoked_ns)
    span_ms = int(at.max() - start) // NS_PER_MS + 1
    width_ms = next((each for each in WIDTHS_MS if span_ms <= each * INTERVALS_MAX), span_ms // INTERVALS_MAX + 1)
    place = (at - start) // (width_ms * NS_PER_MS)
    wall_ms = int(times.wall_ms[int(times.invoked_ns.argmin())])
    took_ms = (times.completed_ns - times.invoked_ns) / NS_PER_MS
    order = np.argsort(place, kind="stable")
    edges = np.searchsorted(place[order], np.arange(int(place.max()) + 2))
    found = []
    for number, (first, last) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        chosen = order[first:last]
        ok, writes = times.ok[chosen], times.writes[chosen]
        p50, p99 = _percentiles(took_ms[chosen][ok])
        counts = int((ok & ~writes).sum()), int((ok & writes).sum()), int((~ok).sum())
        from_ms = number * width_ms
        found.append(AuditInterval(from_ms, wall_ms + from_ms, width_ms, *counts, p50, p99))
    return found


def _percentiles(values: Any) -> tuple[float, float]:
    if not len(values):
        return float("nan"), float("nan")
    p50, p99 = np.percentile(values, (50, 99))
    return float(p50), float(p99)
