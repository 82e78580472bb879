"""What drivers of the tests run (`spark_driver.py`), in their process and in those of their executors. Results are
JSON."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import TaskContext

from palisade import pipeline
from palisade.pipeline import history, large_batch
from palisade.pipeline.spark_sink import Sink, StreamSink
from palisade.pipeline.spark_source import PalisadeSource

DIE = "PALISADE_TEST_DIE"
"""WHEN:PATH: the first streaming commit after which there is no file PATH kills the driver, before or after it, or
between the publication of its large batch and the copy of the rows."""
WAIT_S = 60.0


def digest_of(items: Iterable[tuple[bytes, bytes]]) -> str:
    """Of a set of keys with their values."""
    found = hashlib.sha256()
    for key, value in sorted(items):
        found.update(b"%d %b=%d %b;" % (len(key), key, len(value), value))
    return found.hexdigest()


def loaded(spark: Any, endpoints: str, options: Mapping[str, str]) -> Any:
    return spark.read.format("palisade").options(endpoints=endpoints, **options).load()


def scan(spark: Any, endpoints: str, options: Mapping[str, str], slow_s: float = 0.0) -> list[Any]:
    """Rows and digest of a state. `slow_s`: each task waits so long between its pages."""
    frame = loaded(spark, endpoints, options).select("key", "value")
    if slow_s:
        frame = frame.mapInArrow(partial_wait(slow_s), frame.schema)
    rows = frame.collect()
    return [len(rows), digest_of((row.key.encode(), bytes(row.value)) for row in rows)]


def partial_wait(seconds: float) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def wait(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            time.sleep(seconds)
            yield batch

    return wait


def write(
    spark: Any, endpoints: str, prefix: str, rows: int, mode: str = "append", fault: list[str] | None = None
) -> None:
    """Keys `prefix`00000... in four tasks. `fault`: [name, folder], for the attempts of task 0."""
    frame = spark.range(0, rows, 1, 4).selectExpr(
        f"concat('{prefix}', lpad(id, 5, '0')) AS key", "concat('v', id) AS value"
    )
    if fault:
        frame = frame.mapInArrow(disturbed(*fault), frame.schema)
    frame.write.format("palisade").options(endpoints=endpoints, prefix=prefix).mode(mode).save()


def disturbed(fault: str, folder: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Each attempt leaves a file NUMBER-ATTEMPT at its end."""

    def passed_on(batches: Iterator[Any]) -> Iterator[Any]:
        task = TaskContext.get()
        assert task is not None
        number, attempt = task.partitionId(), task.attemptNumber()
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            if number == 0:
                FAULTS[fault](Path(folder), attempt)
            yield batch.slice(batch.num_rows // 2)
        Path(folder, f"{number}-{attempt}").touch()

    return passed_on


def executor_killed(folder: Path, attempt: int) -> None:
    """Once, and leaves the number of the attempt. With speculation, another attempt may come before the first one."""
    try:
        with (folder / "killed").open("x") as killed:
            killed.write(str(attempt))
    except FileExistsError:
        return
    kill_jvm()


def overtaken(folder: Path, attempt: int) -> None:
    """The first attempt waits until a speculative one has ended."""
    ends_at = time.monotonic() + WAIT_S
    while attempt == 0 and not (folder / "0-1").exists() and time.monotonic() < ends_at:
        time.sleep(0.05)


FAULTS = {"executor_killed": executor_killed, "overtaken": overtaken}


def kill_jvm() -> None:
    """The Java process that this Python process works for, an executor or a driver of the test; and this one."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        if pid <= 1:
            raise RuntimeError("this process has no JVM above it")
    os.kill(pid, signal.SIGKILL)
    os._exit(1)


def copy_stream(spark: Any, endpoints: str, source: str, target: str, checkpoint: str, rows_max: int = 100) -> int:
    """Copies the changes below `source` to `target` in batches of one transaction each. The number of batches."""
    changes = spark.readStream.format("palisade").options(
        endpoints=endpoints, prefix=source, startingRevision="earliest", maxRowsPerBatch=str(rows_max)
    )
    spark.dataSource.register(DyingSource)
    query = (
        changes.load()
        .selectExpr(f"replace(key, '{source}', '{target}') AS key", "value", "op")
        .writeStream.format("dying")
        .options(endpoints=endpoints, prefix=target, checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return len(query.recentProgress)


class DyingSource(PalisadeSource):
    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamSink:  # noqa: N802
        return DyingSink(Sink(self.options, overwrite, stream=True))


class DyingSink(StreamSink):
    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        when, _, path = os.environ.get(DIE, "").partition(":")
        dies = bool(path) and batchId > 0 and not Path(path).exists()
        if dies and when == "before":
            Path(path).touch()
            kill_jvm()
        if dies and when == "between":
            Path(path).touch()
            large_batch.finish_overlapping = lambda spans: kill_jvm()  # type: ignore[assignment,return-value]
        super().commit(messages, batchId)
        if dies:
            Path(path).touch()
            kill_jvm()


def job(spark: Any, name: str, endpoints: str, options: Mapping[str, Any]) -> dict[str, Any]:
    return pipeline.run(name, endpoints, spark=spark, **options).fields


def archived_state(spark: Any, folder: str, revision: int, prefix: str) -> list[Any]:
    """Rows and digest of the state at a revision, from the archive alone."""
    rows = history.at(spark, folder, revision).collect()
    found = [(bytes(row.key), bytes(row.value)) for row in rows if bytes(row.key).startswith(prefix.encode())]
    return [len(found), digest_of(found)]
