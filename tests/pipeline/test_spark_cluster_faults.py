"""Drivers that die, full disks and compaction, with one node and `local-cluster`, which retries tasks (issue 18)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from random import Random
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from tests.support.spark_calls import DIE, digest_of
from tests.support.spark_driver import CallFailed, DriverEnded, SparkDriver, drivers
from tests.support.threaded_node import ThreadedNode

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("java")]

ROWS = 300
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
PAUSE_S = 0.05
FILE_BYTES_MAX = 300_000
"""Less than the archive of the test needs, and more than any other file of a driver."""


@pytest.fixture(scope="module")
def make_driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., SparkDriver]]:
    with drivers(tmp_path_factory.mktemp("drivers")) as make:
        yield make


@pytest.fixture(scope="module")
def cluster_driver(make_driver: Any) -> SparkDriver:
    """One for all tests: a start takes longer than what they do. Spark replaces an executor that was killed."""
    driver: SparkDriver = make_driver(LOCAL_CLUSTER)
    return driver


@pytest.fixture(scope="module")
def driver(make_driver: Any) -> SparkDriver:
    """One for all tests, which no test kills."""
    driver: SparkDriver = make_driver("local[2]")
    return driver


def content(client: SyncClient, prefix: str) -> tuple[int, str, set[int]]:
    """Number and digest of the keys below a prefix, and their versions."""
    kvs = client.range(prefix, prefix=True).kvs
    return len(kvs), digest_of((kv.key, kv.value) for kv in kvs), {kv.version for kv in kvs}


def expected(prefix: str, rows: int = ROWS) -> str:
    return digest_of((b"%b%05d" % (prefix.encode(), number), b"v%d" % number) for number in range(rows))


def test_local_cluster_reads_writes_and_retries_the_task_of_a_killed_executor(
    cluster_driver: SparkDriver, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    fault = ["executor_killed", str(tmp_path)]
    cluster_driver.call("write", endpoints=threaded.address, prefix="a/", rows=ROWS, fault=fault)
    assert (tmp_path / "killed").exists()
    assert content(blocking, "a/") == (ROWS, expected("a/"), {1})
    options = {"prefix": "a/", "numPartitions": "3"}
    assert cluster_driver.call("scan", endpoints=threaded.address, options=options) == [ROWS, expected("a/")]


def test_large_write_whose_executor_is_killed_is_published_once(
    cluster_driver: SparkDriver, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    """The task has staged some of its rows; its second attempt stages all of them."""
    fault = ["executor_killed", str(tmp_path)]
    cluster_driver.call("write", endpoints=threaded.address, prefix="a/", rows=16_000, fault=fault)
    assert (tmp_path / "killed").exists()
    assert content(blocking, "a/") == (16_000, expected("a/", 16_000), {1})
    assert blocking.range("pipeline/stages/", prefix=True, count_only=True).count == 0


@pytest.mark.parametrize(("when", "opened"), [("before", 0), ("between", 1)])
def test_stream_whose_driver_is_killed_around_the_opening_of_a_large_batch_writes_each_row_once(
    make_driver: Any, driver: SparkDriver, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path, when: str,
    opened: int,
) -> None:  # fmt: skip
    """`before`: the rows are staged, and nothing is published: the next driver stages them again. `between`: the batch
    is published, and no row is at its key: the next driver completes it and does not publish it again."""
    rows, batch = 4_500, 1_500
    blocking.put_many((b"in/%05d" % number, b"v%d" % number) for number in range(rows))
    killed, checkpoint = tmp_path / "killed", str(tmp_path / "checkpoint")
    given = {"endpoints": threaded.address, "source": "in/", "target": "out/", "checkpoint": checkpoint}
    first = make_driver("local[2]", **{DIE: f"{when}:{killed}"})
    with pytest.raises((CallFailed, DriverEnded)):
        first.call("copy_stream", **given, rows_max=batch)
    first.kill()
    assert killed.exists()
    assert blocking.range("pipeline/stages/", prefix=True, count_only=True).count > 0
    assert content(blocking, "out/")[0] == batch - 1, "revision 1 has no changes"
    assert [window.closed for window in blocking.scan_windows(b"out/", b"out0")].count(0) == opened
    driver.call("copy_stream", **given, rows_max=batch)
    assert content(blocking, "out/") == (rows, expected("out/", rows), {1})


@pytest.mark.parametrize("when", ["before", "after"])
def test_stream_whose_driver_is_killed_around_the_publication_of_a_batch_writes_each_row_once(
    make_driver: Any, driver: SparkDriver, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path, when: str
) -> None:
    """`before`: the tasks have handed over their rows, and nothing is published. `after`: Spark does not know it."""
    blocking.put_many((b"in/%05d" % number, b"v%d" % number) for number in range(ROWS))
    killed = tmp_path / "killed"
    given = {
        "endpoints": threaded.address,
        "source": "in/",
        "target": "out/",
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    first = make_driver("local[2]", **{DIE: f"{when}:{killed}"})
    with pytest.raises((CallFailed, DriverEnded)):
        first.call("copy_stream", **given)
    first.kill()
    assert killed.exists()
    assert content(blocking, "out/")[0] == (99 if when == "before" else 199), "revision 1 has no changes"
    driver.call("copy_stream", **given)
    assert content(blocking, "out/") == (ROWS, expected("out/"), {1})


def test_scan_and_archive_are_of_one_revision_while_the_store_is_compacted(
    driver: SparkDriver, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    blocking.put_many((b"a/%05d" % number, b"v%d" % number) for number in range(5_000))
    for name, given in {
        "scan": {"options": {"prefix": "a/", "numPartitions": "6"}, "slow_s": 0.3},
        "job": {"name": "history", "options": {"to": str(tmp_path / "archive"), "batch_revisions": 2_000}},
    }.items():
        with ThreadPoolExecutor(1) as pool:
            before = blocking.range("a/", prefix=True, count_only=True).revision
            waiting = pool.submit(driver.call, name, endpoints=threaded.address, **given)
            while not waiting.done():
                blocking.compact(blocking.put("b", "x").revision)
                wait([waiting], timeout=PAUSE_S)
            found = waiting.result()
        if name == "scan":
            assert found == [5_000, expected("a/", 5_000)]
            continue
        assert found["last"] >= before
        state = driver.call("archived_state", folder=str(tmp_path / "archive"), revision=found["last"], prefix="a/")
        assert state == [5_000, expected("a/", 5_000)]


def test_archive_on_a_full_disk_stays_whole_and_the_next_run_completes_it(
    driver: SparkDriver, blocking: SyncClient, threaded: ThreadedNode, tmp_path: Path
) -> None:
    archive = tmp_path / "archive"
    given = {"name": "history", "endpoints": threaded.address, "options": {"to": str(archive)}}

    def put(numbers: range) -> None:
        blocking.put_many((b"a/%05d" % number, random.randbytes(200)) for number in numbers)

    random = Random(1)
    put(range(10))
    state = {"folder": str(archive), "prefix": "a/"}
    first = driver.call("job", **given)["last"]
    put(range(10, 3_000))
    with driver.files_limited(FILE_BYTES_MAX):
        with pytest.raises(CallFailed, match=r"File too large|No space left"):
            driver.call("job", **given)
        wanted = content(blocking, "a/")[:2]
        assert driver.call("archived_state", revision=first, **state)[0] == 10
    last = driver.call("job", **given)["last"]
    assert driver.call("archived_state", revision=last, **state) == list(wanted)
