"""Watches of the blocking client: no event is lost or repeated, whatever ends a wait (issue 15)."""

from __future__ import annotations

import contextlib
import gc
from concurrent.futures import ThreadPoolExecutor

import pytest

from palisade.client import Unavailable
from palisade.client.sync_client import SyncClient
from palisade.client.sync_watch import SyncWatch
from tests.support.threaded_node import ThreadedNode, interrupt, later


def test_ctrl_c_while_a_watch_waits_loses_no_event(blocking: SyncClient) -> None:
    with blocking.watch("k", start_revision=2) as watch:
        timer = later(interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(watch)
        timer.join()
        blocking.put("k", "1")
        assert watch.next(timeout_s=5).events[0].kv.value == b"1"


def test_watch_iterates_over_changes(blocking: SyncClient) -> None:
    watch = blocking.watch("k/", prefix=True)
    for number in range(3):
        blocking.put(f"k/{number}", str(number))
    found = [next(watch) for _ in range(3)]
    assert [each.events[0].kv.value for each in found] == [b"0", b"1", b"2"]
    assert watch.next_revision == found[-1].revision + 1
    assert watch.trouble is None
    watch.close()
    assert list(watch) == []


def test_watch_wait_ends_at_its_timeout_and_loses_nothing(blocking: SyncClient) -> None:
    with blocking.watch("k", start_revision=2) as watch:
        with pytest.raises(TimeoutError):
            watch.next(timeout_s=0.05)
        for number in range(200):
            blocking.put("k", str(number))
            if number % 20 == 0:
                take_all(watch)
        seen = watch.next_revision - 2
        rest = [watch.next(timeout_s=5) for _ in range(200 - seen)]
        assert [each.revision for each in rest] == list(range(2 + seen, 202))


def take_all(watch: SyncWatch) -> None:
    """Until none has come."""
    with contextlib.suppress(TimeoutError):
        while True:
            watch.next(timeout_s=0)


def test_close_of_a_watch_ends_threads_that_wait_for_it(blocking: SyncClient) -> None:
    watch = blocking.watch("k")
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(list, watch) for _ in range(4)]
        later(watch.close).join()
        assert [each.result(5) for each in waiting] == [[], [], [], []]


def test_close_of_the_client_ends_its_watches(blocking: SyncClient) -> None:
    watch = blocking.watch("k")
    timer = later(blocking.close)
    with pytest.raises(Unavailable, match="closed"):
        next(watch)
    timer.join()
    watch.close()


def test_threads_that_share_a_watch_get_each_event_once(blocking: SyncClient) -> None:
    watch = blocking.watch("k", start_revision=2)
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(take, watch, 25) for _ in range(4)]
        for number in range(100):
            blocking.put("k", str(number))
        revisions = sorted(each for worker in workers for each in worker.result(10))
    assert revisions == list(range(2, 102))


def take(watch: SyncWatch, count: int) -> list[int]:
    return [watch.next(timeout_s=5).revision for _ in range(count)]


def test_watch_keeps_its_client_open(threaded: ThreadedNode) -> None:
    watch = SyncClient([threaded.address], follow_leader=False).watch("k", start_revision=2)
    gc.collect()
    with SyncClient([threaded.address], follow_leader=False) as other:
        other.put("k", "1")
    assert watch.next(timeout_s=5).events[0].kv.value == b"1"
