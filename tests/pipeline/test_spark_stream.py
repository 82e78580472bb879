"""Streams of Spark: where they start, how large a batch is, and what follows compaction (issue 18)."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from tests.support.threaded_node import ThreadedNode

pytestmark = pytest.mark.e2e

Batch = list[Any]
Run = Callable[..., list[Batch]]


@pytest.fixture
def run(spark: Any, threaded: ThreadedNode, tmp_path: Path) -> Run:
    """Reads all that there is, from the checkpoint of the test; returns the rows of each micro-batch."""

    def read(**options: object) -> list[Batch]:
        texts = {name: str(value) for name, value in options.items()}
        source = spark.readStream.format("palisade").options(
            **{"endpoints": threaded.address, "startingRevision": "earliest", "valueType": "string", **texts}
        )
        batches: list[Batch] = []
        query = (
            source.load()
            .writeStream.foreachBatch(lambda frame, _: batches.append(frame.collect()))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return batches

    return read


def apply(state: dict[str, str], batches: list[Batch]) -> dict[str, str]:
    """A consumer as docs/pipeline.md describes it."""
    for rows in batches:
        if any(row.op == "reset" for row in rows):
            state = {}
        for row in sorted(rows, key=lambda row: (row.revision, row.sub or 0)):
            if row.op in ("put", "snapshot"):
                state = {**state, row.key: row.value}
            elif row.op == "delete":
                state = {key: value for key, value in state.items() if key != row.key}
    return state


def state_of(client: SyncClient, prefix: str) -> dict[str, str]:
    return {kv.key.decode(): kv.value.decode() for kv in client.range(prefix, prefix=True).kvs}


def compact_all(threaded: ThreadedNode, client: SyncClient) -> None:
    """Once the pin of the last batch has ended."""
    threaded.do(lambda: threaded.group.clock.advance(601))
    client.compact(client.put("other", "x").revision)


def test_stream_whose_offset_was_compacted_fails_or_continues_with_the_state(
    run: Run, blocking: SyncClient, threaded: ThreadedNode
) -> None:
    """Keys that were deleted in the compacted revisions are unknown: the consumer removes what is not in the state."""
    options = {"prefix": "s/", "numPartitions": 2}
    for number in range(30):
        blocking.put(f"s/{number}", "first")
    state = apply({}, run(**options))
    assert state == state_of(blocking, "s/")
    for number in range(10):
        blocking.delete(f"s/{number}")
        blocking.put(f"s/{number + 20}", "second")
    compact_all(threaded, blocking)
    with pytest.raises(Exception, match=r"which was compacted; the oldest that can be read is .*onCompacted=snapshot"):
        run(**options)
    blocking.delete("s/29")
    batches = run(onCompacted="snapshot", **options)
    state = apply(state, batches)
    assert state == state_of(blocking, "s/")
    assert [row.op for row in batches[0]].count("reset") == 1
    blocking.delete("s/28")
    batches = run(onCompacted="snapshot", **options)
    assert [(row.op, row.key) for rows in batches for row in rows] == [("delete", "s/28")]


def test_snapshot_batch_that_is_planned_again_after_a_crash_has_a_state_that_is_retained(
    run: Run, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    """Spark stored the end of the batch, and died; its revision was compacted before the query started again."""
    for number in range(20):
        blocking.put(f"s/{number}", "first")
    blocking.compact(blocking.delete("s/7").revision)
    options = {"prefix": "s/", "onCompacted": "snapshot"}
    assert apply({}, run(**options)) == state_of(blocking, "s/")
    for commit in (tmp_path / "checkpoint" / "commits").glob("*"):
        commit.unlink()
    blocking.delete("s/8")
    blocking.put("s/new", "later")
    compact_all(threaded, blocking)
    batches = run(**options)
    assert apply({"s/7": "old", "s/8": "old"}, batches) == state_of(blocking, "s/")


def test_stream_of_empty_state_resets_its_consumer(run: Run, blocking: SyncClient) -> None:
    blocking.put("s/1", "first")
    blocking.compact(blocking.delete("s/1").revision)
    batches = run(prefix="s/", onCompacted="snapshot")
    assert [row.op for rows in batches for row in rows] == ["reset"]


def test_stream_starts_at_a_time_and_its_batches_have_at_most_so_many_bytes(
    run: Run, blocking: SyncClient, threaded: ThreadedNode
) -> None:
    blocking.put("s/before", "x" * 500)
    threaded.do(lambda: threaded.group.clock.advance(60))
    for number in range(40):
        blocking.put(f"s/{number:02d}", "x" * 500)
        blocking.put(f"other/{number:02d}", "x" * 500)
    first = blocking.get("s/00")
    assert first is not None
    moment = threaded.do(lambda: threaded.group.clock.now())
    text = datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat()
    batches = run(prefix="s/", startingRevision=text, maxBytesPerBatch=6_000)
    rows = [row for batch in batches for row in batch]
    assert [row.key for row in rows] == [f"s/{number:02d}" for number in range(40)]
    assert rows[0].revision == first.mod_revision
    assert {len(batch) for batch in batches[:-1]} == {10}


def test_checkpoint_of_another_cluster_is_refused(run: Run, blocking: SyncClient, tmp_path: Path) -> None:
    blocking.put("s/1", "x")
    run(prefix="s/")
    blocking.put("s/2", "x")
    for offset in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"):
        text, changed = re.subn(r'"cluster_id": *"[^"]*"', '"cluster_id": "other"', offset.read_text())
        assert changed == 1
        offset.write_text(text)
        (offset.parent / f".{offset.name}.crc").unlink(missing_ok=True)
    with pytest.raises(Exception, match=r"checkpoint belongs to generation .* of cluster 'other'"):
        run(prefix="s/")


def test_lag_of_a_stream_is_in_its_progress(spark: Any, blocking: SyncClient, threaded: ThreadedNode) -> None:
    """`latestOffset` of the progress is the newest revision of the cluster, also while batches are limited."""
    for number in range(30):
        blocking.put(f"s/{number}", "x")
    last = blocking.put("s/last", "x").revision
    source = spark.readStream.format("palisade").options(
        endpoints=threaded.address, startingRevision="earliest", maxRowsPerBatch="5", prefix="s/"
    )
    query = source.load().writeStream.format("noop").start()
    try:
        query.processAllAvailable()
        progress = query.recentProgress[0].sources[0]
    finally:
        query.stop()
    assert json.loads(progress.latestOffset)["revision"] == last
    assert json.loads(progress.endOffset)["revision"] < last
