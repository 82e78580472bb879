"""One run of the job `audit`: reads histories and cluster, checks in Spark, writes the report.

The time is noted before the cluster's revision and the change feed are read. Thus a write that was acknowledged before
this time and is not in the feed is lost, even if recording continues.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from palisade.base.counted import counted
from palisade.base.key_text import key_text
from palisade.pipeline import spark_audit
from palisade.pipeline.audit import html_report
from palisade.pipeline.audit.acts import DROPPED, FEED, NOTES, axis_of
from palisade.pipeline.audit.cluster_findings import compared, divergence, misaligned, unannounced
from palisade.pipeline.audit.findings import Finding
from palisade.pipeline.audit.key_history import Scope
from palisade.pipeline.audit.order import Gap, Times, gap_findings, gaps, out_of_order
from palisade.pipeline.audit.timeline import AuditInterval, timeline
from palisade.pipeline.audit_options import AuditOptions
from palisade.pipeline.cluster_evidence import Evidence, gather
from palisade.pipeline.job import Progress, Report, source_options
from palisade.pipeline.options import ClusterAccess
from palisade.wire.recorded_history import RecordingHeader

FINDINGS_MAX = 100_000
"""Kept in the report."""
SHOWN, SUBJECT_BYTES = 10, 256
COLUMNS = ("invoked_ns", "completed_ns", "wall_ms", "revision", "writes", "made", "ordered", "ok", "operation")


@dataclass(frozen=True, slots=True)
class Histories:
    """The operations of all files. `dropped`: number of operations that the recorders dropped. `feed`: revisions that a
    file contains completely, (0, 0) if no file does. `ranges`: some operations concern keys that they do not name."""

    times: Times
    clients: int
    dropped: int
    feed: tuple[int, int]
    ranges: bool


class AuditRun:
    def __init__(
        self, spark: Any, access: ClusterAccess, options: AuditOptions, files: Sequence[str], progress: Progress
    ) -> None:
        self._spark, self._access, self._options, self._files = spark, access, options, files
        self._progress = progress

    def run(self) -> Report:
        evidence = None
        if not self._options.history_only:
            self._progress("read the cluster")
            evidence = gather(self._access, self._options.copy_list)
        found = list(_of_cluster(evidence)) if evidence else []
        notes = list(_notes_of_cluster(evidence)) if evidence else []
        rows: list[AuditInterval] = []
        no_success: list[Gap] = []
        facts = [("histories", counted(len(self._files), "file"))]
        counts = Counter(each.kind for each in found)
        if self._files:
            self._progress("read the histories")
            histories = self._histories()
            facts += [("operations", str(len(histories.times.ok))), ("clients", str(histories.clients))]
            if histories.dropped:
                facts.append(("operations that the recorders dropped", str(histories.dropped)))
            self._progress("check the histories")
            in_keys, by_kind = self._check_keys(histories, evidence)
            no_success = [
                gap for writes in (False, True) for gap in gaps(histories.times, self._options.gap_ms, writes=writes)
            ]
            in_all = [*out_of_order(histories.times), *gap_findings(no_success)]
            counts += Counter(each.kind for each in in_all) + by_kind
            found += [*in_keys, *in_all]
            rows = timeline(histories.times)
        self._progress("write the report")
        content = html_report.Content(
            facts, dict(counts), found, rows, no_success,
            evidence.digests if evidence else (), evidence.segments if evidence else (),
            evidence.copies if evidence else (), notes,
        )  # fmt: skip
        folder = self._options.folder
        write(folder, content)
        return report_of(folder, content)

    # Histories.

    def _histories(self) -> Histories:
        self._axis = axis_of([_header(path) for path in self._files], self._options.clock_error_ms)
        operations = self._paths().mapInArrow(
            spark_audit.reads_operations(self._axis), spark_audit.ddl(spark_audit.OPERATIONS)
        )
        table = operations.select("client", "kind", "ranges", *COLUMNS).toArrow()
        is_note = np.isin(table["kind"].to_numpy(), NOTES)
        notes = table.filter(pa.array(is_note)).to_pylist()
        table = table.filter(pa.array(~is_note))
        columns = (table[name].to_numpy() for name in COLUMNS)
        return Histories(
            Times._make(columns),
            len(table["client"].unique()),
            sum(note["invoked_ns"] for note in notes if note["kind"] == DROPPED),
            next(((note["invoked_ns"], note["completed_ns"]) for note in notes if note["kind"] == FEED), (0, 0)),
            bool(table["ranges"].to_numpy().any()),
        )

    def _paths(self) -> Any:
        frame = self._spark.createDataFrame([(path,) for path in self._files], "path STRING")
        return frame.repartition(len(self._files))

    def _acts(self, keys: Sequence[bytes]) -> Any:
        return self._paths().mapInArrow(
            spark_audit.reads_acts(self._axis, keys), spark_audit.ddl(spark_audit.ACTS)
        )  # fmt: skip

    def _check_keys(self, histories: Histories, evidence: Evidence | None) -> tuple[list[Finding], Counter[str]]:
        """The first findings, and the number of findings of each kind."""
        keys: list[bytes] = []
        if histories.ranges:
            named = self._acts([]).select("key").distinct().toArrow()
            keys = sorted(named["key"].to_pylist())
        acts = self._acts(keys)
        scope = self._scope(histories, evidence)
        if evidence is not None:
            acts = acts.unionByName(self._feed(evidence))
        sorted_acts = acts.repartition("key").sortWithinPartitions("key")
        findings = sorted_acts.mapInArrow(
            spark_audit.checks_keys(scope), spark_audit.ddl(spark_audit.FINDINGS)
        ).cache()  # fmt: skip
        try:
            first = findings.limit(FINDINGS_MAX).toArrow().to_pylist()
            counts = {row["kind"]: row["count"] for row in findings.groupBy("kind").count().collect()}
        finally:
            findings.unpersist()
        return [Finding(**each) for each in first], Counter(counts)

    def _scope(self, histories: Histories, evidence: Evidence | None) -> Scope:
        all_writers = self._options.all_writers and not histories.dropped
        if evidence is None:
            return Scope(*histories.feed, all_writers)
        sure_ms = evidence.read_wall_ms - self._options.clock_error_ms
        return Scope(evidence.first, evidence.last, all_writers, sure_ms)

    def _feed(self, evidence: Evidence) -> Any:
        options = {"history": "true", "keyType": "binary", "valueType": "binary"}
        span = {"fromRevision": str(min(evidence.first, evidence.last)), "toRevision": str(evidence.last)}
        reader = self._spark.read.format("palisade").options(**source_options(self._access), **options, **span)
        changes = reader.load().select("key", "value", "revision", "op")
        return changes.mapInArrow(spark_audit.changes_as_acts, spark_audit.ddl(spark_audit.ACTS))


def _header(path: str) -> RecordingHeader:
    first = next(spark_audit.entries_at(path), None)
    return first if isinstance(first, RecordingHeader) else RecordingHeader("", "", 0, 0)


# The cluster.


def _of_cluster(evidence: Evidence) -> Iterator[Finding]:
    yield from divergence(evidence.digests)
    yield from unannounced(evidence.segments, evidence.last)
    records = dict(evidence.roles)
    for role in sorted({copy.role for copy in evidence.copies}):
        copies = [copy for copy in evidence.copies if copy.role == role]
        yield from misaligned(role, records.get(role), evidence.epoch, copies)


def _notes_of_cluster(evidence: Evidence) -> Iterator[str]:
    """Notes about checks that could not be decided."""
    readable = sum(not each.problem for each in evidence.digests)
    if compared(evidence.digests) < len(evidence.digests) or readable < 2:
        yield (
            f"Digests of {compared(evidence.digests)} of {counted(len(evidence.digests), 'member')} were compared: the "
            "others did not answer, or not at the same revision. Run the audit again while less is written."
        )
    for copy in evidence.copies:
        if copy.problem:
            yield f"Copy {copy.place} of role {copy.role} could not be read: {copy.problem}"
    watched = {copy.role for copy in evidence.copies}
    missing = [role for role, _ in evidence.roles if role not in watched]
    if missing:
        yield f"No --copies of these roles, so their journals were not compared: {', '.join(missing)}"


# The report.


def write(folder: Path, content: html_report.Content) -> None:
    """Replaces the files of an earlier report."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, table in tables(content).items():
        pq.write_table(table, folder / f"{name}.parquet")
    page = html_report.page(content, html_report.plots(content))
    (folder / "report.html").write_text(page, encoding="utf-8")


def tables(content: html_report.Content) -> dict[str, pa.Table]:
    return {
        "findings": pa.Table.from_batches(
            list(spark_audit.batches_of(content.findings, spark_audit.FINDINGS)), spark_audit.FINDINGS
        ),
        "timeline": _table(AuditInterval._fields, content.timeline),
        "gaps": _table(Gap._fields, content.gaps),
        "members": _table(("member", "revision", "chain", "problem"), [
            (each.member, each.revision, each.chain, each.problem) for each in content.digests
        ]),
        "segments": _table(("segment", "state", "nodes"), content.segments),
        "copies": _table(("role", "place", "sequence", "epoch", "active", "filling", "problem"), [
            (each.role, each.place, each.local and each.local.sequence, each.local and each.local.epoch,
             each.active, each.filling, each.problem)
            for each in content.copies
        ]),
    }  # fmt: skip


def _table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [()] * len(names)
    return pa.table({name: [_plain(cell) for cell in column] for name, column in zip(names, columns, strict=True)})


def _plain(cell: Any) -> Any:
    if isinstance(cell, float) and math.isnan(cell):
        return None
    return list(cell) if isinstance(cell, tuple) else cell


def report_of(folder: Path, content: html_report.Content) -> Report:
    total = sum(content.counts.values())
    lines = [f"{name}: {value}" for name, value in content.facts]
    lines += [f"{kind}: {number}" for kind, number in sorted(content.counts.items())] or ["no findings"]
    lines += [f"  {_line(each)}" for each in content.findings[:SHOWN]]
    if total > (shown := min(len(content.findings), SHOWN)):
        lines.append(f"  and {counted(total - shown, 'more finding')}: see {folder / 'findings.parquet'}")
    lines += [*content.notes, f"report: {folder / 'report.html'}"]
    fields = {
        "findings": total,
        "by_kind": dict(sorted(content.counts.items())),
        "first": [_shape(each) for each in content.findings[:SHOWN]],
        **{name.replace(" ", "_"): value for name, value in content.facts},
        "notes": list(content.notes),
        "report": str(folder / "report.html"),
    }
    return Report(fields, "\n".join(lines), ok=not total)


def _line(finding: Finding) -> str:
    subject = f" {key_text(finding.subject, SUBJECT_BYTES)}" if finding.subject else ""
    return f"{finding.kind}{subject}: {finding.text}"


def _shape(finding: Finding) -> dict[str, Any]:
    return {**finding._asdict(), "subject": finding.subject.decode("utf-8", "backslashreplace")}
