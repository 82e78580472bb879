"""Spark with Palisade: scans, bulk load, streams and the job ingest (issue 18, "How fast").

    scripts/bench/run pipeline [--part P]... [--rows N] [--rate N] [--seconds N] [--quick] [--master M]
                               [--data-dir D] [--keep D] [--no-keep]

Three nodes on loopback with fsync, and Spark with as many tasks as there are cores. Every step runs twice; the second
run counts. Parts, all of them by default:

scan    State and history of N rows with 100-byte values into Parquet and into `noop`, beside a data source that
        generates the same rows in its tasks without a server; into `noop` with 1, 2 and 4 tasks. Then generated, over
        the network, and from the vaults of the nodes, each with the same number of tasks: the median of three rounds.
etcd    The same state read from etcd by a driver, page by page (10,000 keys, JSON), and made a DataFrame in `noop`.
load    N rows written by `df.write`, until acknowledged.
stream  Changes at a fixed rate for some seconds: from the commit at the leader until the batch is processed.
ingest  All flights and weather of the demo, from the start of the job.
audit   A recorded history of as many operations, with the change feed of the store; from the start of the job.

Exit codes: 0 every threshold is met, 1 one is not, 2 it could not be measured.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import uvloop

from harness.etcd import Etcd
from harness.figures import Line, Threshold, all_pass, alone, medians, versus
from harness.histories import write_histories
from harness.palisade import Palisade
from harness.process import ProcessEnded
from harness.report import KEPT, ToolMissing, keep, need, show, surroundings
from harness.spark_rows import PREFIX, EtcdDriver, GeneratedRows, key_of
from harness.system import NotReady
from palisade import pipeline
from palisade.client import Client
from palisade.pipeline.errors import SparkMissing
from palisade.spark import session

VALUE = b"v" * 100
PARTS = ("scan", "etcd", "load", "stream", "ingest", "audit")
ROWS_PER_TASK = 100_000
SCAN, LOAD = Threshold(at_least=150_000), Threshold(at_least=20_000)
OF_GENERATING, OF_NETWORK, OF_ETCD = Threshold(at_least=0.5), Threshold(at_least=2), Threshold(at_least=3)
LAG_P95_S, INGEST_S = Threshold(at_most=2), Threshold(at_most=60)
FLIGHTS, WEATHER = 336_776, 26_115
PUTS_PER_TURN_S = 0.02
STARTED_S = 120.0
CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}


class CountDiffers(Exception):
    """Rows are missing: the figures would mean nothing."""


class StreamFailed(Exception):
    """The query ended by itself."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Shared by all parts."""

    spark: Any
    folder: Path
    rows: int
    rate: int
    seconds: float
    first_day: str
    days_end: str

    def read(self, system: Palisade, **options: object) -> Any:
        texts = {name: str(value) for name, value in options.items()}
        given = {"endpoints": ",".join(system.streams), "prefix": PREFIX}
        return self.spark.read.format("palisade").options(**given, **texts).load()

    def generated(self, parts: int) -> Any:
        return self.spark.read.format("generated").options(rows=str(self.rows), parts=str(parts)).load()

    def to_noop(self, frame: Any) -> None:
        frame.write.format("noop").mode("overwrite").save()

    def to_parquet(self, frame: Any) -> None:
        frame.write.mode("overwrite").parquet(str(self.folder / "parquet"))


def run_s(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return time.monotonic() - began


def second_run_s(work: Callable[[], object]) -> float:
    work()
    return run_s(work)


async def fill(system: Palisade, rows: int) -> int:
    """The revision of the first row."""
    async with Client(system.streams, timeout_s=60.0) as client:
        before = (await client.range("\0", count_only=True)).revision
        await client.put_many((key_of(number).encode(), VALUE) for number in range(rows))
        found = (await client.range(PREFIX, prefix=True, count_only=True)).count
    if found != rows:
        raise CountDiffers(f"{rows:,} rows were acknowledged, and {found:,} are there")
    return before + 1


def scans(ground: Ground, system: Palisade, first: int) -> list[Line]:
    rows, parts = ground.rows, max(2, -(-ground.rows // ROWS_PER_TASK))
    history = {"history": "true", "fromRevision": first}
    for options in ({}, history):
        if (found := ground.read(system, **options).count()) != rows:
            raise CountDiffers(f"a scan with {options} returned {found:,} of {rows:,} rows")
    lines = []
    for target, write in (("Parquet", ground.to_parquet), ("noop", ground.to_noop)):
        alone_s = second_run_s(lambda write=write: write(ground.generated(parts)))
        lines.append(alone(f"generated rows into {target}", "rows/s", rows / alone_s, Threshold()))
        for name, options in (("state", {}), ("history", history)):
            took_s = second_run_s(lambda write=write, options=options: write(ground.read(system, **options)))
            wanted = SCAN if target == "Parquet" else Threshold()
            lines.append(alone(f"{name} into {target}", "rows/s", rows / took_s, wanted))
            share = OF_GENERATING if target == "Parquet" else Threshold()
            lines.append(alone(f"{name} into {target}, relative to generated", "ratio", alone_s / took_s, share))
    for tasks in (1, 2, 4):
        took_s = second_run_s(lambda tasks=tasks: ground.to_noop(ground.read(system, numPartitions=tasks)))
        lines.append(alone(f"state into noop, {tasks} tasks", "rows/s", rows / took_s, Threshold()))
    return lines + from_vaults(ground, system, parts)


def from_vaults(ground: Ground, system: Palisade, parts: int) -> list[Line]:
    """All three with the same number of tasks, and in turns, so that none has the machine at a better time."""
    folders = ",".join(str(system.folder / process.name / "vault") for process in system.processes)
    frames = {
        "generated": lambda: ground.generated(parts),
        "network": lambda: ground.read(system, numPartitions=parts),
        "vaults": lambda: ground.read(system, numPartitions=parts, vaults=folders, vaultOnly="true"),
    }
    rounds = [
        {name: run_s(lambda make=make: ground.to_noop(make())) for name, make in frames.items()} for _ in range(4)
    ]
    took_s = medians(rounds[1:])
    rates = {name: ground.rows / seconds for name, seconds in took_s.items()}
    lines = [
        alone(f"state into noop, {parts} tasks: {name}", "rows/s", rate, Threshold()) for name, rate in rates.items()
    ]
    for name in ("network", "vaults"):
        share = rates[name] / rates["generated"]
        lines.append(
            alone(f"state into noop, {parts} tasks: {name}, relative to generated", "ratio", share, Threshold())
        )
    return [
        *lines,
        alone("state from vaults, relative to network", "ratio", rates["vaults"] / rates["network"], OF_NETWORK),
    ]


def from_etcd(ground: Ground, system: Palisade, etcd: Etcd) -> list[Line]:
    driver = EtcdDriver(etcd.urls[0])
    driver.load(ground.rows, VALUE)

    def pages() -> None:
        frame = ground.spark.createDataFrame(driver.table())
        ground.to_noop(frame)

    try:
        theirs = ground.rows / second_run_s(pages)
    finally:
        driver.close()
    ours = ground.rows / second_run_s(lambda: ground.to_noop(ground.read(system)))
    return [versus("state into noop; etcd: by pages in the driver", "rows/s", ours, theirs, OF_ETCD)]


def load(ground: Ground, system: Palisade) -> list[Line]:
    """The second run overwrites each row of the first one."""
    width = len(key_of(0)) - len(PREFIX)
    frame = ground.spark.range(0, ground.rows, 1, 4).selectExpr(
        f"concat('load/', lpad(id, {width}, '0')) AS key", f"repeat('v', {len(VALUE)}) AS value"
    )

    def write() -> None:
        options = {"endpoints": ",".join(system.streams), "prefix": "load/"}
        frame.write.format("palisade").options(**options).mode("append").save()

    return [alone("bulk load, three nodes with fsync", "rows/s", ground.rows / second_run_s(write), LOAD)]


async def stream(ground: Ground, system: Palisade) -> list[Line]:
    """Lags of every row of the second half of the time: from its timestamp until its batch is processed."""
    lags: list[np.ndarray[Any, Any]] = []

    def process(batch: Any, _: int) -> None:
        written_us = batch.select("timestamp").toArrow()["timestamp"].cast("int64").to_numpy()
        lags.append(time.time() - written_us / 1e6)

    source = ground.spark.readStream.format("palisade").options(
        endpoints=",".join(system.streams), prefix="live/", startingRevision="latest"
    )
    query = source.load().writeStream.foreachBatch(process).start()
    try:
        async with Client(system.streams, timeout_s=30.0) as client:
            await until_running(client, query, lags)
            await at_rate(client, ground.rate, ground.seconds / 2)
            lags.clear()
            done = await at_rate(client, ground.rate, ground.seconds / 2)
        async with asyncio.timeout(60):
            while sum(map(len, lags)) < done and query.exception() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
    finally:
        await asyncio.to_thread(query.stop)
    if (error := query.exception()) is not None:
        raise StreamFailed(str(error))
    p95 = float(np.percentile(np.concatenate(lags), 95))
    return [alone(f"lag of a stream at {ground.rate:,} changes/s, p95", "s", p95, LAG_P95_S)]


async def until_running(client: Client, query: Any, lags: list[Any]) -> None:
    """A query chooses its first revision some time after `start` returns: writes until it has processed one."""
    async with asyncio.timeout(STARTED_S):
        while not lags and query.exception() is None:
            await client.put(b"live/first", VALUE)
            await asyncio.sleep(0.2)


async def at_rate(client: Client, rate: int, seconds: float) -> int:
    """How many puts were acknowledged, `rate` per second."""
    began, done = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        due = int(passed * rate) - done
        await client.put_many((b"live/%06d" % (number % 10_000), VALUE) for number in range(done, done + due))
        done += due
        await asyncio.sleep(PUTS_PER_TURN_S)
    return done


def ingest(ground: Ground, system: Palisade) -> list[Line]:
    """Both runs publish: into folders and data sources of clusters of their own there would be no second run, so the
    first one publishes one day, and the second one the rest."""
    options = {"to": str(ground.folder / "segments")}

    def run(start: str, end: str) -> int:
        report = pipeline.run("ingest", system.streams, spark=ground.spark, start=start, end=end, **options)
        return sum(each["rows"] for each in report.fields["data_sources"])

    run("2013-01-01", "2013-01-02")
    began = time.monotonic()
    found = run(ground.first_day, ground.days_end)
    took_s = time.monotonic() - began
    if not ground.days_end and found != FLIGHTS + WEATHER:
        raise CountDiffers(f"the job ingested {found:,} rows of {FLIGHTS + WEATHER:,}")
    return [alone(f"ingest of {found:,} flights and hours of weather", "s", took_s, INGEST_S)]


def audit(ground: Ground) -> list[Line]:
    histories = ground.folder / "histories"
    write_histories(histories, ground.rows)
    began = time.monotonic()
    report = pipeline.run(
        "audit", "127.0.0.1:1", spark=ground.spark, to=str(ground.folder / "audit"), histories=str(histories),
        history_only=True,
    )  # fmt: skip
    took_s = time.monotonic() - began
    if report.fields["findings"] or report.fields["operations"] != str(ground.rows):
        raise CountDiffers(f"the audit of {ground.rows:,} operations without contradictions reports {report.text}")
    return [alone(f"audit of {ground.rows:,} operations", "s", took_s, Threshold())]


async def run(options: argparse.Namespace) -> tuple[list[Line], dict[str, Any]]:
    parts: list[str] = options.part or list(PARTS)
    spark = session(options.master, app="benchmark", config=CONFIG)
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(GeneratedRows)
    kept = ("--retention-revisions", "10000000", "--retention-s", "86400")
    lines: list[Line] = []
    with tempfile.TemporaryDirectory(prefix="palisade-bench-", dir=options.data_dir) as temporary:
        folder = Path(temporary)
        content: dict[str, Any] = {"machine": surroundings(folder), "rows": options.rows, "master": options.master}
        days_end = "2013-02-01" if options.quick else ""
        ground = Ground(spark, folder, options.rows, options.rate, options.seconds, "", days_end)
        system = Palisade(folder / "nodes", options=kept)
        async with system:
            first = await fill(system, options.rows) if {"scan", "etcd"} & set(parts) else 0
            steps: dict[str, Callable[[], Awaitable[list[Line]]]] = {
                "scan": lambda: asyncio.to_thread(scans, ground, system, first),
                "etcd": lambda: beside_etcd(ground, system),
                "load": lambda: asyncio.to_thread(load, ground, system),
                "stream": lambda: stream(ground, system),
                "ingest": lambda: asyncio.to_thread(ingest, ground, system),
                "audit": lambda: asyncio.to_thread(audit, ground),
            }
            for part in parts:
                found = await steps[part]()
                lines += found
                print("\n".join(f"{line.title}: {line.ours:,.2f} {line.unit}" for line in found), flush=True)
    spark.stop()
    return lines, content | {"result": [line.to_json() for line in lines]}


async def beside_etcd(ground: Ground, system: Palisade) -> list[Line]:
    async with Etcd(ground.folder / "etcd") as etcd:
        return await asyncio.to_thread(from_etcd, ground, system, etcd)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=5_000, help="changes per second of the stream")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the stream")
    parser.add_argument("--quick", action="store_true", help="a short try: few rows, few changes, one month of flights")
    parser.add_argument("--master", default="local[*]", help="master URL of Spark")
    parser.add_argument("--data-dir", type=Path, help="where the nodes write; default: that for temporary files")
    parser.add_argument("--keep", type=Path, default=KEPT, help="where the JSON goes")
    parser.add_argument("--no-keep", action="store_true", help="write no JSON")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.rate, options.seconds = 1_000, 200, 6.0
    try:
        need("setpriv", *(["etcd"] if not options.part or "etcd" in options.part else []))
        lines, content = uvloop.run(run(options))
    except (ToolMissing, SparkMissing, NotReady, ProcessEnded, CountDiffers, StreamFailed, TimeoutError) as error:
        print(f"pipeline: {error}", file=sys.stderr)
        return 2
    show(f"{options.rows:,} rows with 100-byte values; the second run", lines)
    if not options.no_keep and not options.quick:
        print(f"kept in {keep('pipeline', options.keep, content)}")
    return 0 if all_pass(lines) else 1


if __name__ == "__main__":
    sys.exit(main())
