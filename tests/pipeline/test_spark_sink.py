"""Batches above one transaction, written by Spark (issue 18)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from tests.support.threaded_node import ThreadedNode
from tests.support.written_batches import contents

pytestmark = pytest.mark.e2e

ROWS = 4_500
PRUNES = "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan"
"""Off by default; the optimizer has more rules that leave nothing of a plan."""
Save = Callable[..., None]


@pytest.fixture
def save(threaded: ThreadedNode) -> Save:
    def write(frame: Any, mode: str = "append", **options: str) -> None:
        texts = {"endpoints": threaded.address, "prefix": "p/"} | options
        frame.write.format("palisade").options(**texts).mode(mode).save()

    return write


def rows(spark: Any, count: int, value: str = "concat('v', id)", *, parts: int = 3) -> Any:
    return spark.range(0, count, 1, parts).selectExpr("format_string('p/%06d', id) AS key", f"{value} AS value")


def expected(count: int) -> dict[bytes, bytes]:
    return {b"p/%06d" % number: b"v%d" % number for number in range(count)}


def test_large_batches_are_appended_and_overwritten_as_a_whole(spark: Any, save: Save, blocking: SyncClient) -> None:
    save(rows(spark, ROWS))
    assert contents(blocking) == expected(ROWS)
    save(rows(spark, 2_000, "named_struct('id', id)"), "overwrite")
    assert contents(blocking) == {b"p/%06d" % number: b'{"id":%d}' % number for number in range(2_000)}
    assert blocking.range("pipeline/stages/", prefix=True, count_only=True).count == 0
    assert len(blocking.scan_windows(b"p/", b"p0")) == 2


def test_large_batch_that_fails_leaves_nothing(spark: Any, save: Save, blocking: SyncClient) -> None:
    for bad, reason in (("IF(id = 4000, NULL, 'v')", "value is null"), ("id", "value is of type int")):
        with pytest.raises(Exception, match=reason):
            save(rows(spark, ROWS, bad))
    twice = rows(spark, ROWS).union(rows(spark, 1, parts=1))
    with pytest.raises(Exception, match=r"p/000000.*occurs 2 times"):
        save(twice)
    with pytest.raises(Exception, match="two"):
        save(rows(spark, ROWS, "IF(id = 4000, raise_error('two'), 'v')"))
    assert contents(blocking) == {}
    save(twice, rejectsPrefix="bad/")
    assert contents(blocking).keys() == expected(ROWS).keys() - {b"p/000000"}
    assert len(contents(blocking, "bad/")) == 2
    left = blocking.range("pipeline/stages/", prefix=True, keys_only=True).kvs
    assert len({kv.key.split(b"/")[2] for kv in left}) <= 1  # of tasks that were cut off; their lease ends


def test_schema_may_change_between_batches_but_not_lose_its_columns(
    spark: Any, save: Save, blocking: SyncClient
) -> None:
    save(rows(spark, 2_000))
    save(rows(spark, 2_000).selectExpr("key", "named_struct('text', value) AS value", "'put' AS op"))
    assert contents(blocking)[b"p/000000"] == b'{"text":"v0"}'
    with pytest.raises(Exception, match="has the columns key, value"):
        save(rows(spark, 2_000).selectExpr("key", "value", "1 AS more"))
    assert contents(blocking)[b"p/000000"] == b'{"text":"v0"}'


def test_options_without_effect_are_refused_before_anything_is_written(
    spark: Any, save: Save, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    """Issue 18: a write took each option of reads, and ignored it."""
    with pytest.raises(Exception, match="option valueSchema has no effect on writes: omit it"):
        save(rows(spark, 10), valueSchema="a INT")
    with pytest.raises(Exception, match="option prefx is unknown"):
        save(rows(spark, 10), prefx="p/")
    with pytest.raises(Exception, match="option stageMs has no effect on reads of a state: omit it"):
        spark.read.format("palisade").options(endpoints=threaded.address, stageMs="5000").load()
    source = spark.readStream.format("palisade").options(endpoints=threaded.address, startingRevision="earliest")
    query = source.load().selectExpr("'p/1' AS key", "value").writeStream.format("palisade")
    query.options(endpoints=threaded.address, columns="key", checkpointLocation=str(tmp_path))
    with pytest.raises(Exception, match="option columns has no effect on streaming writes: omit it"):
        query.start().awaitTermination()
    assert contents(blocking) == {}


def test_batch_without_partitions_writes_nothing(spark: Any, save: Save, blocking: SyncClient) -> None:
    save(spark.createDataFrame([], "key STRING, value STRING"))
    assert contents(blocking) == {}


def test_large_batch_of_a_stream_is_published_once_and_read_as_a_whole(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    """The commit log of the query is removed, as if its driver had died before it wrote it: the batch is replayed."""
    blocking.put_many((f"in/{number:06d}", f"v{number}") for number in range(ROWS))

    def run() -> None:
        query = (
            spark.readStream.format("palisade")
            .options(endpoints=threaded.address, prefix="in/", startingRevision="earliest", valueType="string")
            .load()
            .selectExpr("replace(key, 'in/', 'p/') AS key", "value")
            .writeStream.format("palisade")
            .options(endpoints=threaded.address, prefix="p/", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    first = blocking.range("p/", prefix=True).kvs
    assert {kv.key: kv.value for kv in first} == expected(ROWS)
    for commit in (tmp_path / "checkpoint" / "commits").glob("*"):
        commit.unlink()
    run()
    assert blocking.range("p/", prefix=True).kvs == first
    sizes = []
    (window,) = blocking.scan_windows(b"p/", b"p0")
    copy = spark.readStream.format("palisade").options(
        endpoints=threaded.address, prefix="p/", startingRevision=str(window.opened - 4), maxRowsPerBatch="3"
    )
    query = copy.load().writeStream.foreachBatch(lambda frame, _: sizes.append(frame.count()))
    query.option("checkpointLocation", str(tmp_path / "copy")).trigger(availableNow=True).start().awaitTermination()
    assert [size for size in sizes if size] == [ROWS]


def test_micro_batch_without_partitions_leaves_the_record_of_its_query(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    """Spark writes a frame without partitions by one task without rows. If it left no record, the first batch with rows
    would be refused: batches before it would count as missing."""

    def run(frame: Callable[[Any], Any], value: str) -> int:
        """How many rows Spark read from the source."""
        blocking.put("in/1", value)
        source = spark.readStream.format("palisade").options(
            endpoints=threaded.address, prefix="in/", startingRevision="earliest", valueType="string"
        )
        query = frame(source.load().selectExpr("replace(key, 'in/', 'p/') AS key", "value")).writeStream
        query = query.format("palisade").options(
            endpoints=threaded.address, prefix="p/", checkpointLocation=str(tmp_path / "checkpoint")
        )
        done = query.trigger(availableNow=True).start()
        done.awaitTermination()
        return sum(int(each["numInputRows"]) for each in done.recentProgress)

    spark.conf.set(PRUNES, "true")
    try:
        assert run(lambda frame: frame.where("1 = 0"), "dropped") == 0, "the source is replaced by an empty relation"
    finally:
        spark.conf.unset(PRUNES)
    (record,) = contents(blocking, "pipeline/queries/").values()
    assert json.loads(record)["batch"] == 0
    assert run(lambda frame: frame, "kept") == 1
    assert contents(blocking) == {b"p/1": b"kept"}
    (record,) = contents(blocking, "pipeline/queries/").values()
    assert json.loads(record)["batch"] == 1
