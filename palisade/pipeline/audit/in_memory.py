"""The audit of a history that fits into memory. Pure; the job does the same in parallel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from palisade.pipeline.audit.acts import OperationRow, acts_of, acts_of_commit, axis_of, has_ranges, row_of
from palisade.pipeline.audit.findings import Finding
from palisade.pipeline.audit.key_history import Act, Scope, check_key
from palisade.pipeline.audit.order import Gap, gap_findings, gaps, out_of_order, times_of
from palisade.wire.recorded_history import Commit, Entry, Note, Recorded, RecordingHeader


class AuditLimits(NamedTuple):
    """`gap_ms`: how long requests may fail. `clock_error_ms`: of the wall clocks of different machines."""

    gap_ms: int = 5_000
    clock_error_ms: int = 1_000
    all_writers: bool = False


class Audited(NamedTuple):
    findings: list[Finding]
    operations: list[OperationRow]
    gaps: list[Gap]
    dropped: int


def audit(files: Iterable[Iterable[Entry]], limits: AuditLimits) -> Audited:
    """`files`: the entries of each, the header first."""
    recorded: list[tuple[RecordingHeader, Recorded]] = []
    commits: list[Commit] = []
    dropped, feed = 0, (0, 0)
    for entries in files:
        header: RecordingHeader | None = None
        for entry in entries:
            match entry:
                case RecordingHeader():
                    header = entry
                case Note():
                    dropped += entry.dropped
                    feed = entry.feed if entry.feed[0] else feed
                case Commit():
                    commits.append(entry)
                case Recorded() if header is not None:
                    recorded.append((header, entry))
    axis = axis_of([header for header, _ in recorded], limits.clock_error_ms)
    acts = [act for commit in commits for act in acts_of_commit(commit)]
    keys: list[bytes] = []
    if any(has_ranges(each) for _, each in recorded):
        keys = sorted({act.key for header, each in recorded for act in acts_of(header, each, axis)})
    acts += [act for header, each in recorded for act in acts_of(header, each, axis, keys)]
    scope = Scope(*feed, limits.all_writers and not dropped)
    rows = [row_of(header, each, axis) for header, each in recorded]
    times = times_of(rows)
    found_gaps = [gap for writes in (False, True) for gap in gaps(times, limits.gap_ms, writes=writes)]
    found = [finding for key_acts in _by_key(acts) for finding in check_key(key_acts, scope)]
    return Audited([*found, *out_of_order(times), *gap_findings(found_gaps)], rows, found_gaps, dropped)


def _by_key(acts: Iterable[Act]) -> Iterable[list[Act]]:
    found: dict[bytes, list[Act]] = {}
    for act in acts:
        found.setdefault(act.key, []).append(act)
    return found.values()
