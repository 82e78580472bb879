"""The job `audit` in Spark: histories of recording clients against the change feed of their node (issue 18)."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from palisade import pipeline
from palisade.client import segments_api
from palisade.client.sync_client import SyncClient
from palisade.metastore.requests import Put, Range
from palisade.metastore.results import KeyValue, PutResult, RangeResult
from palisade.wire.recorded_effects import Covered, Saw, digest_of, effects_of
from palisade.wire.recorded_history import Outcome, Promise, Recorded, RecordingHeader, entries_of, packed_file
from tests.support.threaded_node import ThreadedNode

pytestmark = pytest.mark.e2e

OPERATIONS = 30_000


def test_audit_of_a_recorded_history_finds_what_was_planted(
    spark: Any, threaded: ThreadedNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it, nothing is found; the planted acts are a write that the store lost, and a read of an old version."""
    monkeypatch.setattr(segments_api, "TEMPORARY", ())  # This node has no broker: a repeated lookup is refused, too.
    histories, report = tmp_path / "histories", tmp_path / "report"
    for name in ("one", "two"):
        with SyncClient(threaded.address, client_id=name, record=histories) as client:
            for number in range(40):
                client.put(f"k/{number % 5}", f"{name} {number}")
                client.get(f"k/{number % 7}")
            client.range("k/", prefix=True)
            client.delete("k/0")
            client.range("k/", prefix=True)

    def audited() -> pipeline.Report:
        return pipeline.run("audit", threaded.address, spark=spark, to=str(report), histories=str(histories))

    good = audited()
    assert (good.ok, good.fields["findings"], good.fields["operations"]) == (True, 0, "166"), good.text
    with (histories / "two-000001.history").open("rb") as file:
        header, *recorded = entries_of(file, "two")
    assert isinstance(header, RecordingHeader)
    puts = [each for each in recorded if isinstance(each, Recorded) and each.kind == "put"]
    last = recorded[-2]
    assert isinstance(last, Recorded)
    assert last.completed_ns is not None
    lost = last._replace(
        number=900, kind="put", wrote=tuple(effects_of(Put(b"k/9"), PutResult(3)).wrote), covered=(), saw=()
    )
    old = RangeResult(last.revision, (KeyValue(b"k/1", b"two 1", 2, puts[1].revision, 9, 0),), False, 1)
    stale = lost._replace(number=901, kind="range", wrote=(), saw=tuple(effects_of(Range(b"k/1"), old).saw))
    stale = stale._replace(invoked_ns=last.completed_ns + 1, completed_ns=last.completed_ns + 2)
    other = RecordingHeader("planted", header.clock, header.clock_ns, header.wall_ns)
    planted = b"".join(packed_file(other, [lost, stale]))
    (histories / "planted-000001.history").write_bytes(planted)
    bad = audited()
    assert not bad.ok
    assert {"lost-write", "stale-read"} <= bad.fields["by_kind"].keys()
    table = pq.read_table(report / "findings.parquet").to_pylist()
    assert {"planted#900", "planted#901"} <= {each["operation"] for each in table}
    assert "<svg" in (report / "report.html").read_text(encoding="utf-8")


def test_one_stale_read_and_one_diverging_value_are_found_among_many_operations(spark: Any, tmp_path: Path) -> None:
    """The history of the benchmark, of a size that several tasks check; nothing else is reported."""
    made = runpy.run_path(str(Path(__file__).parents[2] / "scripts/bench/harness/histories.py"))
    histories = tmp_path / "histories"
    made["write_histories"](histories, OPERATIONS)

    def audited() -> pipeline.Report:
        options = {"to": str(tmp_path / "report"), "histories": str(histories), "history_only": True}
        return pipeline.run("audit", "127.0.0.1:1", spark=spark, **options)

    good = audited()
    assert (good.fields["findings"], good.fields["operations"]) == (0, str(OPERATIONS)), good.text

    def read(number: int, at: int, written: int, value: bytes) -> Recorded:
        """Of key 500, at the time of operation `at`: its version `written`, of 0 to 14."""
        key, put, at_ns = b"k/0500", 500 + made["KEYS"] * written, at * made["STEP_NS"]
        wall_ms = (made["WALL_NS"] + at_ns) // made["NS_PER_MS"]
        seen = Saw(key, put + 2, 502, written + 1, digest_of(value), False)
        return Recorded(
            number, at_ns, at_ns + 1, wall_ms, "range", Promise.LINEARIZABLE, Outcome.OK, 0, "", (), (seen,),
            (Covered(key, b"", False),),
        )  # fmt: skip

    stale, diverging = read(1, 23_500, 9, b"19000"), read(2, 29_999, 14, b"another value")
    header = RecordingHeader("planted", "clock", 0, made["WALL_NS"])
    (histories / "planted-000001.history").write_bytes(b"".join(packed_file(header, [stale, diverging])))
    bad = audited()
    assert bad.fields["by_kind"] == {"stale-read": 1, "two-values": 1}, bad.text
    found = pq.read_table(tmp_path / "report/findings.parquet").to_pylist()
    assert {each["subject"] for each in found} == {b"k/0500"}
