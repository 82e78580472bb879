"""Pins of reads: they hold compaction back while tasks run, and no longer than the cluster allows (issue 18)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import Compacted
from palisade.pipeline import cluster
from palisade.pipeline.cluster import PIN_TRIES, fix, pages
from palisade.pipeline.errors import RevisionGone
from palisade.pipeline.options import read_options
from palisade.pipeline.partitions import ReadPart
from palisade.service import scans
from palisade.wire.scan_pages import rows_of
from tests.support.threaded_node import ThreadedNode

BOUNDS = b"a/", b"a0"
PIN_S = 600
LIFE_S = 3600


@pytest.fixture(autouse=True)
def _short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 10)
    monkeypatch.setattr(scans, "SLICES_PER_PAGE", 1)


class AtOnce(ThreadPoolExecutor):
    """Reads ahead in the caller, so that the next page is there before the time passes: its request renews the pin."""

    def submit(self, fn: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(fn(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done


class Reading:
    """A task in the middle of its part. Its clock is that of the cluster."""

    def __init__(self, node: ThreadedNode, client: SyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
        self.node, self.client = node, client
        monkeypatch.setattr(cluster.time, "monotonic", lambda: node.group.clock.now())
        monkeypatch.setattr(cluster, "ThreadPoolExecutor", AtOnce)
        client.put_many((f"a/{number:03d}", "x") for number in range(100))
        options = read_options({"endpoints": node.address, "prefix": "a/"})
        pinned = fix(client, options, "job")
        part = ReadPart(options.key, options.range_end, 0, pinned.revision, options.access.endpoints)
        self.rows: list[bytes] = []
        self._pages = pages(options, pinned, part)

    def page(self) -> bool:
        """Whether there was another one."""
        page = next(self._pages, None)
        self.rows += [row.key for row in rows_of(page or b"")]
        return page is not None

    def rest(self) -> None:
        while self.page():
            pass

    def compact_after(self, seconds: float) -> None:
        """The time passes, every key is written, and everything that no pin retains is compacted."""
        self.node.do(lambda: self.node.group.clock.advance(seconds))
        self.client.put_many((f"a/{number:03d}", "later") for number in range(100))
        with suppress(Compacted):
            self.client.compact(self.client.put("other", "x").revision)


def test_task_renews_the_pin_while_it_runs(
    threaded: ThreadedNode, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs longer than a pin without renewals, and its revision stays."""
    reading = Reading(threaded, blocking, monkeypatch)
    for _ in range(6):
        assert reading.page()
        reading.compact_after(PIN_S * 0.4)
    reading.rest()
    assert reading.rows == [b"a/%03d" % number for number in range(100)]


def test_task_that_outlives_the_longest_life_of_a_pin_fails_clearly(
    threaded: ThreadedNode, blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = Reading(threaded, blocking, monkeypatch)
    assert reading.page()
    reading.compact_after(LIFE_S + 1)
    with pytest.raises(RevisionGone, match=r"has been compacted: .*only for the cluster's longest life of a pin: load"):
        reading.rest()
    assert len(reading.rows) < 100


def test_pin_is_renewed_and_released_by_its_name(threaded: ThreadedNode, blocking: SyncClient) -> None:
    first = blocking.put("a/1", "x").revision
    assert blocking.pin(*BOUNDS, "job", first, 60_000) == 60_000
    threaded.do(lambda: threaded.group.clock.advance(50))
    assert blocking.pin(*BOUNDS, "job", first, 60_000) == 60_000
    threaded.do(lambda: threaded.group.clock.advance(50))
    later = blocking.put("a/1", "y").revision
    blocking.compact(later)
    assert blocking.scan_counts(*BOUNDS, first).keys == 1
    blocking.unpin(*BOUNDS, "job")
    blocking.compact(blocking.put("a/1", "z").revision)
    with pytest.raises(Compacted):
        blocking.scan_counts(*BOUNDS, first)


class CompactsBeforeItPins:
    """The client of a read. Everything before the newest revision is compacted right before each of `times` pins."""

    def __init__(self, client: SyncClient, times: int) -> None:
        self._client, self.left = client, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def pin(self, *arguments: Any) -> int:
        if self.left:
            self.left -= 1
            self._client.compact(self._client.put("other", "x").revision)
        return self._client.pin(*arguments)


@pytest.mark.parametrize("options", [{}, {"history": "true"}])
def test_revision_that_is_compacted_before_it_is_pinned_is_chosen_anew(
    threaded: ThreadedNode, blocking: SyncClient, options: dict[str, str]
) -> None:
    blocking.put_many((f"a/{number:03d}", "x") for number in range(100))
    given = read_options({"endpoints": threaded.address, "prefix": "a/"} | options)
    pinned = fix(CompactsBeforeItPins(blocking, PIN_TRIES - 1), given, "read")  # type: ignore[arg-type]
    blocking.compact(blocking.put("other", "y").revision)
    assert blocking.scan_counts(*BOUNDS, pinned.oldest).keys == 100
    blocking.unpin(*BOUNDS, "read")
    with pytest.raises(RevisionGone, match="choose a newer revision"):
        fix(CompactsBeforeItPins(blocking, PIN_TRIES), given, "later")  # type: ignore[arg-type]


def test_revision_that_the_options_name_is_not_chosen_anew(threaded: ThreadedNode, blocking: SyncClient) -> None:
    revision = blocking.put("a/1", "x").revision
    given = read_options({"endpoints": threaded.address, "prefix": "a/", "revision": str(revision)})
    client = CompactsBeforeItPins(blocking, 2)
    with pytest.raises(RevisionGone, match=f"revision {revision} has been compacted"):
        fix(client, given, "read")  # type: ignore[arg-type]
    assert client.left == 1
