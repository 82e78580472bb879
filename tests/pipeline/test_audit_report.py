"""The report of an audit: numbers over time, one page without references, tables (issue 18)."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from palisade.pipeline.audit.acts import OperationRow
from palisade.pipeline.audit.cluster_findings import CopyRow, MemberDigest, SegmentRow
from palisade.pipeline.audit.findings import Finding, FindingKind
from palisade.pipeline.audit.html_report import ROWS_MAX, Content, page, plots
from palisade.pipeline.audit.key_history import NEVER
from palisade.pipeline.audit.order import Gap, times_of
from palisade.pipeline.audit.timeline import INTERVALS_MAX, timeline
from palisade.pipeline.audit_options import AuditOptions, copies_in, files_in
from palisade.pipeline.audit_run import report_of, write
from palisade.pipeline.errors import BadOption
from palisade.pipeline.jobs.audit import JOB

MS = 1_000_000


def row(began_ms: int, took_ms: int | None, *, writes: bool = True, ok: bool = True) -> OperationRow:
    end = NEVER if took_ms is None else (began_ms + took_ms) * MS
    return OperationRow(
        "c#1", "c", "put", "", "", "", began_ms * MS, end, 50_000 + began_ms, 0, writes, ok, ok, ok, False
    )


def test_timeline_counts_outcomes_and_latencies_per_interval() -> None:
    rows = [row(0, 10), row(20, 30), row(30, 5, writes=False), row(150, None, ok=False), row(180, 40, ok=False)]
    first, second, third = timeline(times_of(rows))
    assert (first.wall_ms, first.width_ms, first.reads_ok, first.writes_ok, first.failed) == (50_000, 100, 1, 2, 0)
    assert (first.p50_ms, second.failed, third.failed, third.from_ms) == (10.0, 1, 1, 200)
    assert math.isnan(second.p99_ms)
    assert timeline(times_of([])) == []


def test_timeline_of_a_long_history_stays_short() -> None:
    found = timeline(times_of([row(0, 1), row(86_400_000, 1)]))
    assert len(found) <= INTERVALS_MAX + 1
    assert sum(each.writes_ok for each in found) == 2


def content(findings: int = 1) -> Content:
    found = [Finding(FindingKind.STALE_READ.value, b"<script>", 7, "c#1", 50_010, "old & wrong")] * findings
    return Content(
        [("operations", "5")],
        {FindingKind.STALE_READ.value: findings} if findings else {},
        found,
        timeline(times_of([row(0, 10), row(150, None, ok=False)])),
        [Gap("writes", 10 * MS, 150 * MS, 50_010, 3)],
        [MemberDigest("n1", 5, b"chain"), MemberDigest("n2", problem="down")],
        [SegmentRow("flights/1", "served", ("d1", "d2"))],
        [CopyRow("orders", "h:1", problem="no answer")],
        ["Digests of 1 of 2 members were compared."],
    )


def test_page_needs_no_other_file_and_escapes_names() -> None:
    text = page(content(), plots(content()))
    assert text.count("<svg") == 2
    assert "nothing succeeded" in text
    assert "&lt;script&gt;" in text
    assert not re.search(r"<script|<link|<img|src=|@import|url\(http", text)
    references = set(re.findall(r'href="([^"]*)"', text))
    assert all(each.startswith("#") for each in references)


def test_page_shows_the_first_findings_and_their_number() -> None:
    text = page(content(ROWS_MAX + 5), [])
    assert f"{ROWS_MAX + 5} findings" in text
    assert text.count("old &amp; wrong") == ROWS_MAX
    assert f"The first {ROWS_MAX} of" in text
    assert "No findings" in page(content(0), plots(content(0)))


def test_tables_and_page_replace_those_of_an_earlier_report(tmp_path: Path) -> None:
    write(tmp_path, content(3))
    write(tmp_path, content(1))
    (found,) = pq.read_table(tmp_path / "findings.parquet").to_pylist()
    assert (found["kind"], found["subject"], found["revision"]) == ("stale-read", b"<script>", 7)
    assert pq.read_table(tmp_path / "timeline.parquet")["p99_ms"].to_pylist() == [10.0, None]
    assert pq.read_table(tmp_path / "segments.parquet")["nodes"].to_pylist() == [["d1", "d2"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [
            "report.html",
            *(f"{each}.parquet" for each in ["findings", "timeline", "gaps", "members", "segments", "copies"]),
        ]
    )


def test_report_is_not_ok_if_something_was_found(tmp_path: Path) -> None:
    bad, good = report_of(tmp_path, content(2)), report_of(tmp_path, content(0))
    assert (bad.ok, good.ok) == (False, True)
    assert bad.fields["by_kind"] == {"stale-read": 2}
    assert bad.fields["first"][0]["subject"] == "<script>"
    assert "no findings" in good.text


def test_report_names_the_subject_of_each_finding_and_the_number_of_the_others(tmp_path: Path) -> None:
    """Ten identical lines were printed for ten segments, and nothing about 722 others."""
    lines = report_of(tmp_path, content(12)).text.splitlines()
    assert lines.count("  stale-read <script>: old & wrong") == 10
    assert lines[12] == f"  and 2 more findings: see {tmp_path / 'findings.parquet'}"
    assert "more" not in report_of(tmp_path, content(10)).text


@pytest.mark.parametrize(
    "given",
    [
        {"gap_ms": 0},
        {"clock_error_ms": -1},
        {"history_only": True},
        {"copies": "orders"},
        {"copies": "=h:1"},
    ],
)
def test_audit_options_refuse_what_cannot_work(given: dict[str, object]) -> None:
    with pytest.raises(BadOption):
        AuditOptions("out", **given)  # type: ignore[arg-type]


def test_report_is_written_to_a_path_or_a_file_url(tmp_path: Path) -> None:
    """With a URL, as `ingest` takes it, the audit failed after Spark had started: "no node answers" (issue 16)."""
    assert (
        AuditOptions((tmp_path / "a b").as_uri()).folder == tmp_path / "a b" == AuditOptions(f"{tmp_path}/a b").folder
    )
    for other in ("s3://bucket/report", "file:report", ""):
        with pytest.raises(BadOption):
            AuditOptions(other)


def test_copies_and_histories_are_named_by_text(tmp_path: Path) -> None:
    assert copies_in("orders=h:1, orders=h:2") == [("orders", "h:1"), ("orders", "h:2")]
    with pytest.raises(BadOption, match="record one with"):
        files_in(str(tmp_path))
    (tmp_path / "c-000001.history").touch()
    assert files_in(f"{tmp_path},") == [str(tmp_path / "c-000001.history")]
    assert JOB.options is AuditOptions
