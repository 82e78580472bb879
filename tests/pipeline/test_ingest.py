"""The job `ingest` in Spark: rows become segments exactly once, and a day is replaced as a whole (issue 18, P5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from palisade import pipeline
from palisade.base.file_url import path_of_url
from palisade.catalog.parquet_rows import inspect_segment
from palisade.catalog.segment import SegmentRecord
from palisade.client.sync_client import SyncClient
from palisade.pipeline.errors import JobFailed
from tests.support.threaded_node import ThreadedNode

pytestmark = pytest.mark.e2e

GOOD = [f"{number},2024-01-0{1 + number % 3}T0{number % 10}:00:00Z,{number / 4}" for number in range(30)]
BAD = ["x,2024-01-01T00:00:00Z,1", "1,no time,1", "2,2024-01-02T00:00:00Z,1,too many"]


def ingested(spark: Any, node: ThreadedNode, folder: Path, lines: list[str], **more: Any) -> dict[str, Any]:
    (folder / "events.csv").write_text("\n".join(["id,at,weight", *lines, ""]), encoding="utf-8")
    given = {"data_source": "events", "time_column": "at", "columns": "id BIGINT, at TIMESTAMP, weight DOUBLE"}
    report = pipeline.run(
        "ingest", node.address, spark=spark, to=str(folder / "files"), input=str(folder / "events.csv"), **given, **more
    )
    (found,) = report.fields["data_sources"]
    return dict(found)


def records(node: ThreadedNode) -> list[SegmentRecord]:
    """Used ones, in the order of time, each compared with its file."""
    with SyncClient(node.address, follow_leader=False) as client:
        found = [each for each in client.segments_records("events")[1] if each.used]
    for each in found:
        content = inspect_segment(Path(path_of_url(each.url)).read_bytes())
        assert (content.rows, content.digest, content.size_bytes) == (each.rows, each.digest, each.size_bytes)
    return sorted(found, key=lambda each: each.segment.id)


def test_ingest_publishes_each_day_once_and_replaces_a_changed_one(
    spark: Any, threaded: ThreadedNode, tmp_path: Path
) -> None:
    done = ingested(spark, threaded, tmp_path, [*GOOD, *BAD])
    assert (done["rows"], done["segments"], done["published"], done["rejected"]) == (30, 3, 3, 3)
    rejects = "".join(Path(path_of_url(each)).read_text(encoding="utf-8") for each in done["rejects"])
    for reason in ("id: x is not bigint", "at: no time is not", "another number of fields"):
        assert reason in rejects
    first = records(threaded)
    assert [each.rows for each in first] == [10, 10, 10]

    again = ingested(spark, threaded, tmp_path, GOOD[::-1])
    assert (again["published"], again["rejected"]) == (0, 0)
    assert records(threaded) == first, "the order of rows in the input does not matter"

    changed = ingested(spark, threaded, tmp_path, [*GOOD[:-3], "77,2024-01-03T01:00:00Z,0"])
    newest = {each.segment.id.interval: each for each in records(threaded)}
    assert changed["published"] == 3
    assert sum(each.rows for each in newest.values()) == 28


def test_ingest_with_too_many_rejected_rows_publishes_nothing(
    spark: Any, threaded: ThreadedNode, tmp_path: Path
) -> None:
    with pytest.raises(JobFailed, match="3 rows of events were rejected, the limit is 2; nothing was published"):
        ingested(spark, threaded, tmp_path, [*GOOD, *BAD], rejects_max=2)
    with SyncClient(threaded.address, follow_leader=False) as client:
        assert not client.segments_records("events")[1]
