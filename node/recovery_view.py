"""The report of a recovery as people read it (R12). Pure; what programs read is `RecoveryReport.as_dict` itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Report = Mapping[str, Any]


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


def head(report: Report) -> str:
    case, first = report["case"] or "unknown", report["first_case"]
    came = f" (began as case {first})" if first and first != case else ""
    return f"{report['node']}: case {case}{came}, {report['outcome']} in {report['seconds']:.2f} s"


def extent(report: Report) -> str:
    """What was moved for it, where anything was."""
    parts = []
    if report["revisions_replayed"]:
        parts.append(f"{report['revisions_replayed']} revisions replayed")
    if report["snapshots"]:
        parts.append(f"{report['snapshots']} snapshot(s), {report['buckets_differing']} buckets differing")
    if report["bytes_fetched"]:
        parts.append(f"{report['bytes_fetched']:,} bytes fetched")
    if report["waits"]:
        parts.append(f"waited {report['waits']} times for the cluster")
    return "; " + ", ".join(parts) if parts else ""
