"""Reads of Spark: one revision per DataFrame, JSON values, history, streams (issue 18)."""

from __future__ import annotations

import gc
import json
import re
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from palisade.client.sync_client import SyncClient
from tests.support.threaded_node import ThreadedNode

pytestmark = pytest.mark.e2e

Load = Callable[..., Any]


@pytest.fixture
def load(spark: Any, threaded: ThreadedNode) -> Load:
    def frame(**options: object) -> Any:
        texts = {"endpoints": threaded.address, **{name: str(value) for name, value in options.items()}}
        return spark.read.format("palisade").options(**texts).load()

    return frame


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def put_all(client: SyncClient, prefix: str, count: int, text: str = "v") -> int:
    client.put_many((f"{prefix}{number:05d}", f"{text}{number}") for number in range(count))
    return client.put("other/last", "x").revision


def test_session_with_a_local_master_listens_on_loopback_only(spark: Any) -> None:
    host = spark.sparkContext.getConf().get("spark.driver.host")
    assert socket.gethostbyname(host) == "127.0.0.1"


def test_jvms_of_the_tests_map_the_archive_of_classes(spark: Any) -> None:
    """A JVM that does not fit the archive runs without it, in twice the time, and reports nothing."""
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text()
    assert re.search(r"/spark-[0-9a-f]{16}\.jsa$", maps, re.MULTILINE)


def test_workers_import_the_installed_pyspark(spark: Any) -> None:
    """Not the zip, which each of them compiles (`support/spark_home.py`)."""
    (place,) = spark.sparkContext.parallelize([0], 1).map(lambda _: sys.modules["pyspark"].__file__).collect()
    assert Path(place).is_file()


def test_frame_keeps_its_revision_in_every_scan_while_writes_go_on(load: Load, blocking: SyncClient) -> None:
    revision = put_all(blocking, "a/", 2_500)
    frame = load(prefix="a/", numPartitions=2)
    blocking.delete("a/02007")
    put_all(blocking, "a/", 500, "later")
    rows = frame.collect()
    assert [row.key for row in rows] == [f"a/{number:05d}" for number in range(2_500)]
    assert all(bytes(row.value).decode() == f"v{int(row.key[2:])}" for row in rows)
    assert frame.join(frame.withColumnRenamed("value", "same"), "key").where("value = same").count() == 2_500
    assert load(prefix="a/").count() == 2_499
    assert load(prefix="a/", revision=revision, valueType="string").where("value like 'v%'").count() == 2_500


def test_workers_do_not_collect_their_modules_after_each_task(spark: Any, load: Load, blocking: SyncClient) -> None:
    """Spark collects garbage after each task: 40 ms for the modules alone (`worker_memory.py`). The functions of
    `mapInArrow` run in the same workers."""

    def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from (pa.record_batch([pa.array([gc.get_freeze_count()])], ["objects"]) for _ in batches)

    put_all(blocking, "a/", 100)
    frame = load(prefix="a/", numPartitions=4)
    assert frame.count() == frame.count() == 100
    found = spark.range(0, 4, 1, 4).mapInArrow(frozen, "objects BIGINT").collect()
    assert min(row.objects for row in found) > 10_000


def test_filters_of_two_scans_of_one_frame_do_not_mix(load: Load, blocking: SyncClient) -> None:
    """A reader with pushFilters returned the rows of the first filter twice (Spark 4.3)."""
    put_all(blocking, "a/", 10)
    frame = load(prefix="a/")
    found = frame.where("key = 'a/00003'").union(frame.where("key = 'a/00005'"))
    assert sorted(row.key for row in found.collect()) == ["a/00003", "a/00005"]
    assert frame.where("key = 'a/00003'").count() == 1
    assert frame.count() == 10


def test_reader_defines_no_push_filters() -> None:
    from pyspark.sql.datasource import DataSourceReader

    from palisade.pipeline.spark_segments import TableReader
    from palisade.pipeline.spark_source import ScanReader

    assert ScanReader.pushFilters is TableReader.pushFilters is DataSourceReader.pushFilters


def test_json_values_are_columns_and_bad_ones_are_rejected_or_fail(load: Load, blocking: SyncClient) -> None:
    good = {"origin": "EWR", "delay": 4}
    values = [json.dumps(good), '{"origin": "JFK"}', "[1]", "nonsense", '{"delay": "late"}', "null"]
    for number, value in enumerate(values):
        blocking.put(f"f/{number}", value)
    options = {"prefix": "f/", "valueSchema": "origin STRING, delay BIGINT"}
    rows = load(**options).orderBy("key").collect()
    assert [row.value and row.value.asDict() for row in rows] == [
        good, {"origin": "JFK", "delay": None}, None, None, None, None,
    ]  # fmt: skip
    assert [row.rejected and bytes(row.rejected).decode() for row in rows] == [None, None, *values[2:5], None]
    with pytest.raises(Exception, match=r"f/2.* does not match valueSchema"):
        load(mode="failfast", **options).collect()


def test_columns_of_an_option_are_read_and_no_others(load: Load, blocking: SyncClient) -> None:
    """Scans and histories, whose values are then not sent; bad names are refused by load()."""
    first = blocking.put("c/a", "1").revision
    blocking.put("c/a", "2")
    frame = load(prefix="c/", columns="version, key")
    assert (frame.columns, [tuple(row) for row in frame.collect()]) == (["version", "key"], [(2, "c/a")])
    changes = load(prefix="c/", history="true", fromRevision=first, columns="op,revision").orderBy("revision")
    assert [tuple(row) for row in changes.collect()] == [("put", first), ("put", first + 1)]
    old = load(prefix="c/", history="true", fromRevision=first, columns="previous_value", valueType="string")
    assert [row.previous_value for row in old.collect()] == [None, "1"]
    for names, reason in (("key,origin", "no column 'origin'; it has key, value"), ("key,key", "'key' twice")):
        with pytest.raises(Exception, match=reason):
            load(prefix="c/", columns=names)


def test_history_returns_each_change_with_the_replaced_value(load: Load, blocking: SyncClient) -> None:
    first = blocking.put("h/a", "1").revision
    blocking.put("h/a", "2")
    blocking.delete("h/a")
    last = blocking.put("h/b", "3").revision
    blocking.put("h/b", "4")
    frame = load(prefix="h/", history="true", fromRevision=first, toRevision=last, valueType="string", numPartitions=3)
    rows = frame.orderBy("revision").collect()
    assert [(row.key, row.op, row.value, row.previous_value, row.version) for row in rows] == [
        ("h/a", "put", "1", None, 1), ("h/a", "put", "2", "1", 2),
        ("h/a", "delete", None, "2", 0), ("h/b", "put", "3", None, 1),
    ]  # fmt: skip
    assert [row.revision for row in rows] == list(range(first, last + 1))


def test_read_of_a_compacted_revision_names_the_oldest_one(load: Load, blocking: SyncClient) -> None:
    old = put_all(blocking, "a/", 10)
    blocking.compact(put_all(blocking, "a/", 10))
    with pytest.raises(Exception, match=r"RevisionGone.*the oldest that can still be read is"):
        load(prefix="a/", revision=old).count()


def test_pin_keeps_the_revision_of_a_loaded_frame(load: Load, blocking: SyncClient) -> None:
    put_all(blocking, "a/", 10)
    frame = load(prefix="a/")
    blocking.compact(put_all(blocking, "a/", 20, "later"))
    assert frame.count() == 10


def test_read_uses_another_endpoint_and_fails_clearly_without_any(
    load: Load, blocking: SyncClient, threaded: ThreadedNode
) -> None:
    put_all(blocking, "a/", 1_000)
    down = free_address()
    assert load(endpoints=f"{down},{threaded.address}", prefix="a/", numPartitions=2).count() == 1_000
    with pytest.raises(Exception, match=f"connections are refused at {down}"):
        load(endpoints=down, prefix="a/").count()


def test_view_of_sql_reads_keys_and_paths_and_tables_of_the_catalog_are_refused(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode, load: Load
) -> None:
    """Spark 4.3 passes the options of a table in its catalog neither to SELECT nor to INSERT INTO."""
    put_all(blocking, "a/", 10)
    options = f"OPTIONS (endpoints '{threaded.address}', prefix 'a/', valueType 'string')"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW keys USING palisade {options}")
    put_all(blocking, "a/", 10, "later")
    assert spark.sql("SELECT value FROM keys WHERE key = 'a/00003'").collect() == [("v3",)]
    with pytest.raises(Exception, match=r"CREATE TABLE .* is not possible: Spark does not pass the options"):
        spark.sql(f"CREATE TABLE created USING palisade {options}")
    spark.sql(f"CREATE TABLE declared (key STRING, value STRING) USING palisade {options}")
    try:
        for statement in ("SELECT * FROM declared", "INSERT INTO declared VALUES ('a/1', 'v')"):
            with pytest.raises(Exception, match=r"endpoints is missing.*CREATE TEMPORARY VIEW"):
                spark.sql(statement).collect()
    finally:
        spark.sql("DROP TABLE declared")
    with pytest.raises(Exception, match=r"path, .* give keys by option prefix"):
        spark.read.format("palisade").option("endpoints", threaded.address).load("a/")
    with pytest.raises(Exception, match=r"path, .* give keys by option prefix"):
        load(prefix="a/").select("key", "value").write.format("palisade").mode("append").save("a/")


def test_stream_continues_from_its_checkpoint_without_loss_or_duplicates(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    put_all(blocking, "s/", 300)

    def run() -> Counter[tuple[str, int]]:
        source = spark.readStream.format("palisade").options(
            endpoints=threaded.address, prefix="s/", startingRevision="earliest", maxRowsPerBatch="120"
        )
        query = (
            source.load()
            .select("key", "revision")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        assert all(progress.numInputRows <= 120 for progress in query.recentProgress)
        return Counter((row.key, row.revision) for row in spark.read.parquet(str(tmp_path / "out")).collect())

    first = run()
    assert len(first) == 300
    put_all(blocking, "s/", 200, "later")
    second = run()
    assert first <= second
    assert len(second) == 500
    assert set(second.values()) == {1}


def test_write_is_one_revision_and_overwrite_replaces_the_prefix(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode
) -> None:
    def write(ids: range, mode: str) -> None:
        frame = spark.range(ids.start, ids.stop, 1, 3).selectExpr(
            "concat('w/', id) AS key", "named_struct('id', id, 'tags', array('a')) AS value"
        )
        frame.write.format("palisade").options(endpoints=threaded.address, prefix="w/").mode(mode).save()

    write(range(50), "append")
    write(range(40, 60), "append")
    found = blocking.range("w/", prefix=True).kvs
    assert len(found) == 60
    assert len({kv.mod_revision for kv in found}) == 2
    assert found[0].value == b'{"id":0,"tags":["a"]}'
    write(range(55, 70), "overwrite")
    assert {kv.key for kv in blocking.range("w/", prefix=True).kvs} == {b"w/%d" % number for number in range(55, 70)}


def test_streaming_write_whose_driver_dies_after_the_publication_repeats_no_batch(
    spark: Any, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    """A driver that dies between publication and its own commit log replays the batch: the log is removed here."""
    put_all(blocking, "in/", 30)

    def run() -> None:
        frame = (
            spark.readStream.format("palisade")
            .options(endpoints=threaded.address, prefix="in/", startingRevision="earliest", valueType="string")
            .load()
        )
        query = (
            frame.selectExpr("replace(key, 'in/', 'out/') AS key", "value")
            .writeStream.format("palisade")
            .options(endpoints=threaded.address, prefix="out/", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    first = blocking.range("out/", prefix=True)
    assert len(first.kvs) == 30
    for commit in (tmp_path / "checkpoint" / "commits").glob("*"):
        commit.unlink()
    run()
    assert blocking.range("out/", prefix=True).kvs == first.kvs


def test_examples_of_the_documentation_run_as_written(spark: Any, threaded: ThreadedNode) -> None:
    """docs/pipeline.md, block by block, with the address of this node."""
    text = (Path(__file__).parents[2] / "docs/pipeline.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        if 'option("table"' in block:
            continue  # test_spark_segments.py runs it: it needs data nodes.
        exec(block.replace("127.0.0.1:7601", threaded.address), names)
    assert [row.delay for row in names["flights"].orderBy("key").selectExpr("value.delay").collect()] == [9, 20, None]
    assert names["rejected"] == 1
    assert names["keys"].collect() == [("flights/1",)]
    assert names["changes"].count() == 4
    assert names["archived"] == 4
    assert names["found"] == [b"flights/1", b"flights/2"]
    assert names["copy"].keys() == {"flights/1", "flights/2"}
    assert names["late"].count() == 2
    with SyncClient([threaded.address], follow_leader=False) as client:
        assert [kv.key for kv in client.range("late/", prefix=True).kvs] == [b"late/flights/1", b"late/flights/2"]
