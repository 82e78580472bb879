"""Ingests one data source: Spark writes the files of its segments, then one publication makes them visible.

Guarantees, and why they hold:
- A reader sees all segments of an ingest or none: one publication with a manifest (`catalog/publication.py`).
- An ingest that is repeated, for example after a crash, neither loses nor doubles rows: segments are compared by the
  digest of their rows, and an interval is replaced as a whole (`catalog/replacement.py`).
- No published segment loses its file. Ingests of a data source run one at a time under a lock, and each transaction of
  the publication compares that the lock is held. Thus a file of an earlier run that no record names can be deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from palisade.base.counted import agreeing, counted
from palisade.base.file_url import path_of_url, url_of_path
from palisade.catalog.demo.flights import copy_csv, find_data
from palisade.catalog.demo.tables import FLIGHTS, WEATHER
from palisade.catalog.segment import Segment, SegmentRecord
from palisade.catalog.timeline import Interval, SegmentId
from palisade.client.claims import NotAcquired
from palisade.client.sync_client import SyncClient
from palisade.pipeline.errors import BadOption, JobFailed
from palisade.pipeline.ingest_rows import (
    CORRUPT,
    GRANULARITIES,
    REASON,
    ROW,
    START,
    InputColumn,
    InputRows,
    bucket,
    quoted,
    rows_by_column,
    rows_of_table,
    typed_columns,
    with_time,
    within,
)
from palisade.pipeline.job import Progress
from palisade.pipeline.segment_folder import SegmentFolder, folder_of, sync_run
from palisade.pipeline.segment_writing import RESULT, SegmentWriter, WrittenFile

DEMO = {table.name: table for table in (FLIGHTS, WEATHER)}
LOCK_TTL_S, LOCK_WAIT_S = 30.0, 60.0
PART = "__palisade_part"


@dataclass(frozen=True, slots=True)
class Source:
    """`path` empty: the demo data of this name."""

    name: str
    granularity: str
    start: str
    end: str
    rows_max: int
    rejects_max: int
    path: str = ""
    format: str = "csv"
    time_column: str = ""
    columns: str = ""
    null_text: str = ""


@dataclass(frozen=True, slots=True)
class Ingested:
    """`rows`: of the input, without rejected ones. `published`: the number of `segments` that are newly published.
    `rejects`: URLs of files. `swept`: deleted files of earlier runs, and of segments that were published already."""

    data_source: str
    rows: int
    segments: int
    published: int
    rejected: int
    rejects: tuple[str, ...]
    swept: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "data_source": self.data_source,
            "rows": self.rows,
            "segments": self.segments,
            "published": self.published,
            "rejected": self.rejected,
            "rejects": list(self.rejects),
            "swept": self.swept,
        }


def ingest_source(spark: Any, client: SyncClient, source: Source, to: str, progress: Progress) -> Ingested:
    """Raises BadOption, JobFailed and the errors of the client."""
    if spark.conf.get("spark.sql.session.timeZone") != "UTC":
        raise BadOption("times of the input are read in UTC: set spark.sql.session.timeZone to UTC")
    folder = folder_of(to, str(client.status()["cluster_id"]), source.name)
    progress(f"wait for other ingests of {source.name}")
    with held(client, source.name) as lock:
        progress(f"write {source.name}")
        files = written(spark, source, folder, lock.token)
        rejects = [each for each in files if each.start_ms is None]
        segments = [each for each in files if each.start_ms is not None]
        rejected = sum(each.rows for each in rejects)
        if rejected > source.rejects_max:
            raise JobFailed(
                f"{counted(rejected, 'row')} of {source.name} {agreeing(rejected, 'was', 'were')} rejected, the limit "
                f"is {source.rejects_max}; nothing was published. The rows and reasons are in {rejects[0].url}: "
                "correct the input, or raise rejects_max"
            )
        check_reached(folder, segments)
        progress(f"publish {source.name}")
        lock.lease.check()
        published = publish(client, source, folder, segments, lock)
        swept = folder.sweep(lock.token, {each.url for each in client.segments_records(source.name)[1]})
    return Ingested(
        source.name,
        sum(each.rows for each in segments),
        len(segments),
        len(published),
        rejected,
        tuple(each.url for each in rejects),
        swept,
    )


@contextmanager
def held(client: SyncClient, data_source: str) -> Iterator[Any]:
    """The lock of the data source's ingests. Raises JobFailed."""
    lock = client.lock(f"pipeline/ingest/{data_source}", ttl_s=LOCK_TTL_S, timeout_s=LOCK_WAIT_S)
    try:
        lock.acquire()
    except NotAcquired:
        raise JobFailed(
            f"another ingest of {data_source} is running: wait for its end, then start this one again"
        ) from None
    try:
        yield lock
    finally:
        lock.release()


def written(spark: Any, source: Source, folder: SegmentFolder, run: int) -> list[WrittenFile]:
    """The files of all segments and of the rejected rows, written by the tasks."""
    frame, rows = read_input(spark, source, folder, run)
    names = [each.name for each in rows.columns]
    typed = frame.selectExpr(*typed_columns(rows)).selectExpr("*", f"unix_millis({rows.time}) AS {START}")
    placed = typed.selectExpr(*with_time(rows)).where(within(source.start, source.end))
    parted = placed.selectExpr(
        *map(quoted, names),
        f"CASE WHEN {REASON} IS NOT NULL THEN {ROW} END AS {ROW}",
        REASON,
        f"{bucket(source.granularity)} AS {START}",
        f"CASE WHEN {REASON} IS NOT NULL THEN spark_partition_id() ELSE 0 END AS {PART}",
    )
    order = [source.time_column, *(name for name in names if name != source.time_column)] if source.path else names
    writer = SegmentWriter(str(folder.run(run)), tuple(order), tuple(names), source.rows_max)

    def write(key: Any, table: Any) -> Any:
        """Spark accepts functions only."""
        return writer.write(key, table)

    tasks = max(2, 2 * spark.sparkContext.defaultParallelism)
    found = parted.repartition(tasks, START, PART).groupBy(START, PART).applyInArrow(write, RESULT).collect()
    return sorted((WrittenFile(**row.asDict()) for row in found), key=lambda each: (each.start_ms or 0, each.partition))


def read_input(spark: Any, source: Source, folder: SegmentFolder, run: int) -> tuple[Any, InputRows]:
    """The input (texts with the column CORRUPT, or typed columns), and its columns. Raises BadOption."""
    if not source.path:
        rows = rows_of_table(DEMO[source.name])
        path = folder.run(run) / f"input-{source.name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        copy_csv(find_data(), DEMO[source.name], path)
        return read_csv(spark, url_of_path(str(path)), rows.columns), rows
    if source.format == "parquet":
        frame = spark.read.parquet(source.path)
        columns = columns_in(frame.schema)
        return frame, rows_by_column(columns, source.time_column, is_text=False, null_text="")
    if source.columns:
        columns = columns_in(parsed_schema(source.columns))
    else:
        columns = columns_in(spark.read.csv(source.path, header=True, inferSchema=True, quote='"', escape='"').schema)
    rows = rows_by_column(columns, source.time_column, is_text=True, null_text=source.null_text)
    return read_csv(spark, source.path, columns), rows


def read_csv(spark: Any, path: str, columns: Sequence[InputColumn]) -> Any:
    """All columns as text. Raises Spark's error if the header has other columns."""
    schema = ", ".join(f"{quoted(each.name)} STRING" for each in columns) + f", {CORRUPT} STRING"
    return spark.read.csv(
        path,
        schema,
        header=True,
        enforceSchema=False,
        mode="PERMISSIVE",
        columnNameOfCorruptRecord=CORRUPT,
        quote='"',
        escape='"',
    )


def parsed_schema(text: str) -> Any:
    """Raises BadOption."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        return StructType.fromDDL(text)
    except PySparkException as error:
        raise BadOption(
            f"option columns={text!r} is no Spark schema such as 'id BIGINT, at TIMESTAMP': {error}"
        ) from None


def columns_in(schema: Any) -> list[InputColumn]:
    """Raises BadOption for types that segments do not have."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from palisade.catalog.errors import BadRows
    from palisade.catalog.parquet_rows import columns_of

    try:
        columns_of(to_arrow_schema(schema, timezone="UTC"))
    except BadRows as error:
        raise BadOption(f"the input cannot be stored in segments: {error}") from None
    return [InputColumn(each.name, each.dataType.simpleString()) for each in schema]


def check_reached(folder: SegmentFolder, segments: Sequence[WrittenFile]) -> None:
    """Raises JobFailed if the folder of the workers is not that of the driver."""
    if missing := [each.url for each in segments if not folder.has(each.url)]:
        raise JobFailed(
            f"{counted(len(missing), 'file')} of the workers {agreeing(len(missing), 'is', 'are')} missing here, the "
            f"first is {missing[0]}; nothing was published: give a folder that the driver, all workers and the data "
            "nodes share"
        )
    for path in {Path(path_of_url(each.url)).parent for each in segments}:
        sync_run(path)


def publish(
    client: SyncClient, source: Source, folder: SegmentFolder, segments: Sequence[WrittenFile], lock: Any
) -> list[SegmentRecord]:
    """The segments that were not published before. For the others, the published files stay in use."""
    known = [each for each in client.segments_records(source.name)[1] if each.used]
    replicas = replicas_by_interval(known)
    width_ms = GRANULARITIES[source.granularity]
    here = {each.url for each in known if each.url and folder.has(each.url)}

    def same(old: SegmentRecord, new: SegmentRecord) -> bool:
        return old.digest == new.digest and old.url in here

    records = [record_of(source.name, each, width_ms, replicas) for each in segments]
    if not records:
        return []
    found: list[SegmentRecord] = client.segments_replace(source.name, records, condition=[lock.held()], same=same)
    return found


def replicas_by_interval(known: Sequence[SegmentRecord]) -> dict[Interval, int]:
    """Of the highest version."""
    ordered = sorted(known, key=lambda each: each.segment.id.version)
    return {each.segment.id.interval: each.replicas for each in ordered}


def record_of(data_source: str, file: WrittenFile, width_ms: int, replicas: Mapping[Interval, int]) -> SegmentRecord:
    start_ms = file.start_ms or 0
    interval = Interval(start_ms, start_ms + width_ms)
    return SegmentRecord(
        Segment(data_source, SegmentId(interval, 1, file.partition)),
        file.core_partitions,
        file.rows,
        file.size_bytes,
        file.digest,
        replicas.get(interval, 1),
        url=file.url,
    )
