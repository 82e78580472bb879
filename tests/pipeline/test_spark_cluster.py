"""Jobs, reads and writes on a standalone cluster of Spark, a master and two workers, with three nodes (issue 18).

An executor is killed in the middle of a write, a task runs twice, the leader of the nodes is killed while Spark works,
all nodes are down: each batch is written exactly once or not at all.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palisade.base.file_url import path_of_url
from palisade.client.sync_client import SyncClient
from tests.support.preloaded import Preloaded
from tests.support.processes import Cluster, palisade, until
from tests.support.spark_calls import digest_of
from tests.support.spark_driver import CallFailed, SparkDriver, StandaloneSpark, drivers, environment

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("java")]

ROWS, LARGE = 1_000, 6_000
"""Of a batch in one transaction, and of one above it."""
FLIGHTS, WEATHER, WEATHER_OF_MARCH = 336_776, 26_115, 2_227
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.efficiency.enabled": "false",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.fixture(scope="module")
def shared_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(tmp_path_factory.mktemp("nodes"))
    yield cluster
    cluster.kill()


@pytest.fixture
async def nodes(shared_nodes: Cluster) -> Cluster:
    shared_nodes.start()
    await shared_nodes.ready()
    return shared_nodes


@pytest.fixture(scope="module")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneSpark]:
    found = StandaloneSpark(tmp_path_factory.mktemp("standalone"))
    yield found
    found.stop()


@pytest.fixture
async def standalone(shared_spark: StandaloneSpark) -> StandaloneSpark:
    if not shared_spark.running:
        await shared_spark.start()
    return shared_spark


@pytest.fixture(scope="module")
def make_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., SparkDriver]]:
    with drivers(tmp_path_factory.mktemp("drivers")) as make:
        yield make


@pytest.fixture(scope="module")
def kept() -> dict[str, SparkDriver]:
    return {}


@pytest.fixture
def driver(standalone: StandaloneSpark, make_driver: Any, kept: dict[str, SparkDriver]) -> SparkDriver:
    """One for all tests: with speculation, which starts only for tasks that last."""
    if not kept:
        kept["one"] = make_driver(standalone.master, SPECULATION)
    return kept["one"]


def endpoints(nodes: Cluster) -> str:
    return ",".join(nodes.endpoints)


def content(nodes: Cluster, prefix: str) -> tuple[int, str, int]:
    """Number and digest of the keys below a prefix, and how many revisions wrote them."""
    with SyncClient(nodes.endpoints, timeout_s=30) as client:
        kvs = client.range(prefix, prefix=True).kvs
    return len(kvs), digest_of((kv.key, kv.value) for kv in kvs), len({kv.mod_revision for kv in kvs})


def written(prefix: str, rows: int = ROWS) -> tuple[int, str, int]:
    """What `content` finds after an undisturbed write in one transaction."""
    return rows, digest_of((b"%b%05d" % (prefix.encode(), number), b"v%d" % number) for number in range(rows)), 1


def versions(nodes: Cluster, prefix: str) -> set[int]:
    with SyncClient(nodes.endpoints, timeout_s=30) as client:
        return {kv.version for kv in client.range(prefix, prefix=True, keys_only=True).kvs}


async def test_batches_are_read_and_written_by_tasks_on_two_machines(nodes: Cluster, driver: SparkDriver) -> None:
    await asyncio.to_thread(driver.call, "write", endpoints=endpoints(nodes), prefix="plain/", rows=ROWS)
    assert content(nodes, "plain/") == written("plain/")
    options = {"prefix": "plain/", "numPartitions": "4"}
    found = await asyncio.to_thread(driver.call, "scan", endpoints=endpoints(nodes), options=options)
    assert found == list(written("plain/")[:2])


async def test_write_whose_executor_is_killed_is_published_once(
    nodes: Cluster, driver: SparkDriver, tmp_path: Path
) -> None:
    await asyncio.to_thread(
        driver.call, "write",
        endpoints=endpoints(nodes), prefix="killed/", rows=ROWS, fault=["executor_killed", str(tmp_path)],
    )  # fmt: skip
    killed = (tmp_path / "killed").read_text()
    assert not (tmp_path / f"0-{killed}").exists()
    assert content(nodes, "killed/") == written("killed/")


async def test_write_whose_task_runs_twice_is_published_once(
    nodes: Cluster, driver: SparkDriver, tmp_path: Path
) -> None:
    """Both attempts write all of their rows; Spark commits one."""
    await asyncio.to_thread(
        driver.call, "write", endpoints=endpoints(nodes), prefix="twice/", rows=ROWS, fault=["overtaken", str(tmp_path)]
    )
    await until(lambda: (tmp_path / "0-1").exists(), "the end of the speculative attempt")
    assert content(nodes, "twice/") == written("twice/")


async def test_large_write_whose_task_runs_twice_is_published_once(
    nodes: Cluster, driver: SparkDriver, tmp_path: Path
) -> None:
    """Both attempts stage all of their rows; those of the one that Spark commits are copied."""
    await asyncio.to_thread(
        driver.call, "write",
        endpoints=endpoints(nodes), prefix="big/", rows=LARGE, fault=["overtaken", str(tmp_path)],
    )  # fmt: skip
    await until(lambda: (tmp_path / "0-1").exists(), "the end of the speculative attempt")
    assert content(nodes, "big/")[:2] == written("big/", LARGE)[:2]
    assert versions(nodes, "big/") == {1}
    assert content(nodes, "pipeline/stages/")[0] == 0, "what the other attempt has staged is removed"


async def test_large_writes_are_published_once_while_leaders_are_killed(nodes: Cluster, driver: SparkDriver) -> None:
    """Staged, opened and copied through one leader after another, until two were killed."""

    async def write() -> int:
        number = 0
        while killed < 2 or not number:
            given = {"prefix": f"large{number}/", "rows": LARGE}
            await asyncio.to_thread(driver.call, "write", endpoints=endpoints(nodes), **given)
            number += 1
        return number

    killed = 0
    writing = asyncio.create_task(write())
    while not writing.done() and killed < 3:
        leader = await nodes.leader()
        leader.kill()
        killed += 1
        await nodes.leader()
        leader.start()
        await nodes.ready([leader])
        await asyncio.wait({writing}, timeout=1)
    for number in range(await writing):
        prefix = f"large{number}/"
        assert content(nodes, prefix)[:2] == written(prefix, LARGE)[:2]
        assert versions(nodes, prefix) == {1}
    assert killed > 1


async def test_stream_loses_and_repeats_nothing_while_leaders_are_killed(
    nodes: Cluster, driver: SparkDriver, tmp_path: Path
) -> None:
    """Batches of at most 100 revisions; the stream is continued with more rows until two leaders were killed."""
    given = {"source": "in/", "target": "out/", "checkpoint": str(tmp_path / "checkpoint")}
    rows = killed = 0

    def put_more() -> None:
        nonlocal rows
        with SyncClient(nodes.endpoints, timeout_s=30) as client:
            client.put_many((b"in/%05d" % number, b"v%d" % number) for number in range(rows, rows + 900))
        rows += 900

    async def copy() -> int:
        batches: int = await asyncio.to_thread(driver.call, "copy_stream", endpoints=endpoints(nodes), **given)
        while killed < 2:
            await asyncio.to_thread(put_more)
            batches += await asyncio.to_thread(driver.call, "copy_stream", endpoints=endpoints(nodes), **given)
        return batches

    put_more()
    copied = asyncio.create_task(copy())
    while not copied.done() and killed < 3:
        leader = await nodes.leader()
        leader.kill()
        killed += 1
        await nodes.leader()
        leader.start()
        await nodes.ready([leader])
        await asyncio.wait({copied}, timeout=2)
    assert await copied >= rows // 100
    assert killed > 1
    assert content(nodes, "out/")[:2] == written("out/", rows)[:2]
    assert versions(nodes, "out/") == {1}, "no batch was published twice"


async def test_write_without_any_node_fails_clearly_and_leaves_nothing(nodes: Cluster, driver: SparkDriver) -> None:
    for node in nodes.nodes:
        node.kill()
    with pytest.raises(CallFailed, match="connections are refused at"):
        await asyncio.to_thread(driver.call, "write", endpoints=endpoints(nodes), prefix="none/", rows=ROWS)
    nodes.start()
    await nodes.ready()
    assert content(nodes, "none/")[0] == 0
    down = nodes.nodes[0]
    down.kill()
    await asyncio.to_thread(driver.call, "write", endpoints=endpoints(nodes), prefix="two/", rows=ROWS)
    assert content(nodes, "two/") == written("two/")


async def retained(job: Callable[..., Awaitable[dict[str, Any]]], endpoints: str) -> None:
    """The oldest segments past their TTL are removed with their files, at most a tenth of all at a time. As in
    docs/pipeline.md."""
    for words in (("create-database", "demo"), ("set-ttl", "demo.flights", "31536000000")):
        code, _, err = await palisade("catalog", *words, "--endpoints", endpoints)
        assert code == 0, err
    before = files_of_flights(endpoints)
    found = await job("retention")
    assert (found["expired"], found["removed"], found["skipped"]) == (365, 72, 0)
    assert [file for file in before if file.exists()] == before[72:] == files_of_flights(endpoints)


def files_of_flights(endpoints: str) -> list[Path]:
    """Of the published segments, by day. A speculative attempt may write another one after its run was swept."""
    with SyncClient(endpoints) as client:
        return sorted(Path(path_of_url(each.url)) for each in client.segments_records("flights")[1])


async def interrupted(arguments: list[str], folder: Path) -> None:
    """Ctrl-C while tasks write files: the exit code of all commands, and no more than that on stderr."""
    with (folder / "out").open("wb") as out:
        job = Preloaded(arguments, out.fileno(), out.fileno(), environment())
    try:
        await until(lambda: any((folder / "segments").rglob("*.parquet")) or job.poll() is not None, "a file", 120)
        os.kill(job.pid, signal.SIGINT)
        await until(lambda: job.poll() is not None, "the end of the job", 60)
    finally:
        job.kill()
    text = (folder / "out").read_text()
    assert job.returncode == 130, text
    assert "Traceback" not in text


async def test_jobs_run_by_the_command_line_on_the_cluster(
    nodes: Cluster, standalone: StandaloneSpark, driver: SparkDriver, tmp_path: Path
) -> None:
    """All flights and hours of weather of the demo; then the other jobs over the result. The driver of the other tests
    repeats some: it has started already."""

    def arguments(name: str) -> tuple[str, ...]:
        return "pipeline", "run", name, "--master", standalone.master, "--endpoints", endpoints(nodes), "--json"

    async def job(name: str, *options: str, ends_with: int = 0) -> dict[str, Any]:
        one_executor = {} if name == "ingest" else {"SPARK_SUBMIT_OPTS": "-Dspark.cores.max=1"}
        code, out, err = await palisade(*arguments(name), *options, environment=environment(**one_executor))
        assert code == ends_with, err
        return dict(json.loads(out))

    async def repeated(name: str, **options: Any) -> dict[str, Any]:
        given = {"name": name, "endpoints": endpoints(nodes), "options": options}
        return dict(await asyncio.to_thread(driver.call, "job", **given))

    weather = "--data-source", "weather", "--to", (tmp_path / "segments").as_uri()
    await interrupted([*arguments("ingest"), *weather], tmp_path)
    sources = (await job("ingest", "--to", (tmp_path / "segments").as_uri()))["data_sources"]
    assert {each["data_source"]: each["rows"] for each in sources} == {"flights": FLIGHTS, "weather": WEATHER}
    assert [each["published"] for each in sources] == [365, 364]
    march = {"data_source": "weather", "start": "2013-03-01", "end": "2013-04-01"}
    again = (await repeated("ingest", to=(tmp_path / "segments").as_uri(), **march))["data_sources"]
    assert [(each["rows"], each["published"]) for each in again] == [(WEATHER_OF_MARCH, 0)]
    assert (await job("history", "--to", str(tmp_path / "archive")))["last"] > 0
    assert (await repeated("retention", dry_run=True))["expired"] == 0
    await retained(job, endpoints(nodes))
    found = await job("audit", "--to", str(tmp_path / "audit"), ends_with=1)
    assert found["by_kind"] == {"unannounced-segment": 365 + 364 - 72}, "no node has segments here"
