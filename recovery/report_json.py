"""Recoveries as JSON and as text: their results, and the progress of one that is running (R12). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palisade.base.counted import counted
from palisade.recovery.status import RecoveryStatus

Report = Mapping[str, Any]


def recoveries_view(recovery: RecoveryStatus | None) -> dict[str, Any]:
    """Shape `Recoveries` of the API. `acceptable_difference`: the effective one, which a member's flushes enlarge."""
    difference = recovery.difference if recovery is not None else None
    return {
        "recoveries": [report.as_dict() for report in recovery.reports] if recovery is not None else [],
        "begun": recovery.begun if recovery is not None else 0,
        "under_way": progress_view(recovery),
        "catch_up_difference": difference.chosen if difference is not None else None,
        "acceptable_difference": difference.value if difference is not None else None,
    }


def progress_view(recovery: RecoveryStatus | None) -> dict[str, Any] | None:
    """Shape `RecoveryProgress` of the API; None while no recovery runs."""
    progress = recovery.progress if recovery is not None else None
    return progress.as_dict() if progress is not None else None


def progress_text(progress: Mapping[str, Any]) -> str:
    """'replay: 1,200 of 5,000 revisions, 600/s, about 6 s left'. In the shape of `RecoveryProgress.as_dict`."""
    if not progress["unit"]:
        return f"{progress['phase']}: for {progress['seconds']:.1f} s"
    total = f" of {progress['total']:,}" if progress["total"] else ""
    parts = [f"{progress['phase']}: {progress['done']:,}{total} {progress['unit']}"]
    if progress["per_s"] is not None:
        parts.append(f"{progress['per_s']:,.0f}/s")
    if progress["remaining_s"] is not None:
        parts.append(f"about {progress['remaining_s']:.0f} s left")
    return ", ".join(parts)


def progress_cell(progress: Mapping[str, Any] | None) -> str | None:
    """'replay 24 %', for a column of a table."""
    if progress is None:
        return None
    part = f" {100 * progress['done'] // progress['total']} %" if progress["total"] else ""
    return f"{progress['phase']}{part}"


def report_lines(report: Report) -> list[str]:
    """One to five lines. `report` is in the shape of `RecoveryReport.as_dict`."""
    lines = [f"{head(report)}: {report['reason']}" if report["reason"] else head(report)]
    lines.append(f"LV {report['lv_before']} -> {report['lv']}, LM {report['lm']}, MM {report['mm']}{extent(report)}")
    for name, what in (("keys", "keys of the vault"), ("resources", "local resources")):
        counts = report[name]
        if any(counts.values()):
            said = ", ".join(f"{counts[verb]} {verb}" for verb in ("kept", "evicted", "fetched"))
            said += f", {counts['missing']} missing" if counts.get("missing") else ""
            lines.append(f"{what}: {said}")
    if report["phases"]:
        lines.append("time: " + ", ".join(f"{name} {seconds:.3f} s" for name, seconds in report["phases"].items()))
    if report["error"]:
        lines.append(str(report["error"]))
    return lines


def reports_text(reports: Sequence[Report]) -> str:
    return "\n".join("\n    ".join(report_lines(report)) for report in reports)


def head(report: Report) -> str:
    case, first = report["case"] or "unknown", report["first_case"]
    came = f" (began as case {first})" if first and first != case else ""
    return f"{report['node']}: case {case}{came}, {report['outcome']} in {report['seconds']:.2f} s"


def extent(report: Report) -> str:
    """What was transferred, if anything."""
    parts = []
    if report["revisions_replayed"]:
        parts.append(f"{counted(report['revisions_replayed'], 'revision')} replayed")
    if report["snapshots"]:
        parts.append(
            f"{counted(report['snapshots'], 'snapshot')}, {counted(report['buckets_differing'], 'bucket')} differing"
        )
    if report["bytes_fetched"]:
        parts.append(f"{report['bytes_fetched']:,} bytes fetched")
    if report["waits"]:
        parts.append(f"waited {counted(report['waits'], 'time')} for the cluster")
    return "; " + ", ".join(parts) if parts else ""
