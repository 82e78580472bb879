"""The blocking client against the stream of one node: threads, deadlines, Ctrl-C, closing, forks (issue 15)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import inspect
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from metastore.errors import Compacted, KeyTooLarge
from metastore.requests import Put as PlainPut
from metastore.results import PutResult
from node.client import Client, OutcomeUnknown, Unavailable
from node.client.loop_thread import ClientClosed
from node.client.sync_client import SyncClient, connect
from node.client.sync_watch import SyncWatch
from node.operations import Compare, Delete, Get, Put, Txn
from tests.support.threaded_node import ThreadedNode, threaded_node

BLOCKED_S = 0.2
"""Long enough for a thread to reach its wait. Where it has not, the test still holds, by another way."""


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    with threaded_node() as started:
        yield started


@pytest.fixture
def client(node: ThreadedNode) -> Iterator[SyncClient]:
    with SyncClient([node.address], follow_leader=False, timeout_s=5) as opened:
        yield opened


def later(function: Callable[[], Any], delay_s: float = BLOCKED_S) -> threading.Timer:
    timer = threading.Timer(delay_s, function)
    timer.start()
    return timer


def interrupt() -> None:
    """What Ctrl-C does to the main thread."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


# Calls


def test_sync_client_reads_what_it_wrote(client: SyncClient) -> None:
    first = client.put("a", "1")
    second = client.put(b"a", b"2", prev_kv=True)
    found = client.get("a")
    assert (first.revision, second.revision) == (2, 3)
    assert second.prev_kv is not None
    assert second.prev_kv.value == b"1"
    assert found is not None
    assert (found.key, found.value) == (b"a", b"2")
    assert client.get("b") is None
    assert [kv.key for kv in client.range("", prefix=True).kvs] == [b"a"]
    assert client.delete("a").deleted == 1


def test_sync_client_raises_the_errors_of_the_client(client: SyncClient) -> None:
    client.put("a", "1")
    client.put("a", "2")
    client.compact(3)
    with pytest.raises(KeyTooLarge, match="4096"):
        client.put("k" * 5000)
    with pytest.raises(Compacted) as refused:
        client.get("a", revision=2)
    assert refused.value.minimal_revision == 3
    with pytest.raises(TypeError, match="bytes or text"):
        client.put(1)  # type: ignore[arg-type]


def test_txn_takes_text_and_bytes(client: SyncClient) -> None:
    made = client.txn([Compare.absent("a")], [Put("a", "1"), Txn((), [Put("b", b"2")])], [Get("a")])
    assert made.succeeded
    changed = client.txn([Compare.value_is("a", "1"), Compare.exists("b")], [Delete("a", "c"), PlainPut(b"c")])
    assert changed.succeeded
    assert [kv.key for kv in client.range("", prefix=True).kvs] == [b"c"]
    unchanged = client.txn([Compare.revision_is("c", 1)], [Put("c", "x")])
    assert not unchanged.succeeded


def test_txn_refuses_what_is_no_operation(client: SyncClient) -> None:
    with pytest.raises(TypeError, match="not str"):
        client.txn([], ["a"])  # type: ignore[list-item]


def test_catalog_and_cluster_calls_answer(client: SyncClient) -> None:
    made = client.catalog_do("create-database", {"database": "plant"}, procedure="p1", wait_s=2)
    assert (made["state"], made["released"]) == ("done", True)
    assert [each["name"] for each in client.catalog_objects("databases")] == ["plant"]
    assert client.members()[0]["id"] == "n1"
    lease = client.lease_grant(60)
    assert client.leases() == (lease.id,)


# Drift


def public_coroutines() -> list[str]:
    return [name for name, each in inspect.getmembers(Client, inspect.iscoroutinefunction) if not name.startswith("_")]


def shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in list(inspect.signature(function).parameters.values())[1:]]


@pytest.mark.parametrize("name", [*public_coroutines(), "watch", "__init__"])
def test_sync_client_has_each_method_of_client(name: str) -> None:
    method, blocking = getattr(Client, name), getattr(SyncClient, name)
    assert shape(blocking) == shape(method)
    assert not inspect.iscoroutinefunction(blocking)
    if name not in ("__init__", "close"):
        assert blocking.__doc__ == method.__doc__
        own, theirs = inspect.signature(blocking), inspect.signature(method)
        for parameter in theirs.parameters.keys() - {"self", "items"}:
            assert own.parameters[parameter].annotation == theirs.parameters[parameter].annotation


def test_client_has_the_methods_that_are_compared() -> None:
    assert {"put", "get", "range", "delete", "txn", "put_many", "catalog_do", "status"} <= set(public_coroutines())


# Threads


def test_many_threads_share_one_connection(node: ThreadedNode, client: SyncClient) -> None:
    def work(thread: int) -> list[PutResult]:
        return [client.put(f"k/{thread}/{number}", str(number)) for number in range(50)]

    with ThreadPoolExecutor(32) as pool:
        results = [each for found in pool.map(work, range(32)) for each in found]
    assert len({each.revision for each in results}) == 32 * 50
    assert client.range("k/", prefix=True, count_only=True).count == 32 * 50
    assert node.connections() == 1


def test_requests_of_threads_are_under_way_together(node: ThreadedNode, client: SyncClient) -> None:
    node.group.held = True
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(client.put, f"k/{number}", "v") for number in range(16)]
        deadline = time.monotonic() + 5
        while node.group.submitted < 16 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert node.group.submitted == 16
        node.do(node.group.release)
        assert len({each.result(5).revision for each in waiting}) == 16


def test_thread_storm_with_closing_clients_ends(node: ThreadedNode) -> None:
    ended = []

    def work(number: int) -> None:
        with SyncClient([node.address], follow_leader=False, timeout_s=5) as own:
            closer = later(own.close, 0.01 * (number % 5))
            try:
                for turn in range(200):
                    own.put(f"k/{number}", str(turn))
            except (Unavailable, OutcomeUnknown) as error:
                ended.append(error)
            closer.join()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert not [each for each in threading.enumerate() if each.name == "palisade-client"]


def test_put_many_reads_its_items_in_the_thread_of_the_caller(client: SyncClient) -> None:
    threads, counts = set(), []

    def pairs() -> Iterator[tuple[str, str]]:
        for number in range(5000):
            threads.add(threading.current_thread())
            yield f"k/{number:04}", str(number)

    def progress(count: int) -> None:
        threads.add(threading.current_thread())
        counts.append(count)

    assert client.put_many(pairs(), outstanding=300, progress=progress) == 5000
    assert threads == {threading.current_thread()}
    assert counts == sorted(counts)
    assert client.range("k/", prefix=True, count_only=True).count == 5000


def test_put_many_keeps_the_order_of_one_key(client: SyncClient) -> None:
    assert client.put_many((("a", str(number)) for number in range(3000)), outstanding=2000) == 3000
    found = client.get("a")
    assert found is not None
    assert (found.value, found.version) == (b"2999", 3000)


def test_put_many_raises_the_first_refusal(client: SyncClient) -> None:
    def endless() -> Iterator[tuple[str, str]]:
        yield "k" * 5000, "too long"
        while True:
            yield "k", "v"

    with pytest.raises(KeyTooLarge):
        client.put_many(endless())


def test_put_many_raises_what_its_items_raise(client: SyncClient) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield from ((f"k/{number}", "v") for number in range(1000))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        client.put_many(broken())
    assert client.put("a", "1").revision


def test_callback_of_the_client_may_not_wait_for_it(client: SyncClient) -> None:
    async def inside() -> None:
        client.get("a")

    with pytest.raises(RuntimeError, match="wait for itself"):
        client._running().run(inside())


# Deadlines and interruptions


def test_deadline_of_a_call_holds(node: ThreadedNode, client: SyncClient) -> None:
    client.put("a", "1")
    node.group.held = True
    begun = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="the deadline passed"):
        client.put("a", "2", timeout_s=0.3)
    assert 0.25 < time.monotonic() - begun < 3


def test_call_without_a_node_ends_at_its_deadline() -> None:
    with SyncClient([unused_address()], timeout_s=0.3) as alone, pytest.raises(Unavailable, match="nothing was done"):
        alone.put("a", "1")


def test_ctrl_c_ends_a_waiting_call_and_cancels_it(node: ThreadedNode, client: SyncClient) -> None:
    client.put("a", "1")
    node.group.held = True
    timer = later(interrupt)
    with pytest.raises(KeyboardInterrupt):
        client.put("a", "2")
    timer.join()
    node.do(node.group.release)
    assert client.put("b", "1").revision
    assert client._running().run(calls_under_way()) == 0


async def calls_under_way() -> int:
    """In the thread of the client: those of `StoreApi`."""
    return sum("StoreApi" in repr(each.get_coro()) for each in asyncio.all_tasks())


def test_ctrl_c_while_a_watch_waits_loses_no_event(client: SyncClient) -> None:
    with client.watch("k", start_revision=2) as watch:
        timer = later(interrupt)
        with pytest.raises(KeyboardInterrupt):
            next(watch)
        timer.join()
        client.put("k", "1")
        assert watch.next(timeout_s=5).events[0].kv.value == b"1"


# Watches


def test_watch_iterates_over_what_happens(client: SyncClient) -> None:
    watch = client.watch("k/", prefix=True)
    for number in range(3):
        client.put(f"k/{number}", str(number))
    found = [next(watch) for _ in range(3)]
    assert [each.events[0].kv.value for each in found] == [b"0", b"1", b"2"]
    assert watch.next_revision == found[-1].revision + 1
    assert watch.trouble is None
    watch.close()
    assert list(watch) == []


def test_watch_wait_ends_at_its_timeout_and_loses_nothing(client: SyncClient) -> None:
    with client.watch("k", start_revision=2) as watch:
        with pytest.raises(TimeoutError):
            watch.next(timeout_s=0.05)
        for number in range(200):
            client.put("k", str(number))
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


def test_close_of_a_watch_ends_threads_that_wait_for_it(client: SyncClient) -> None:
    watch = client.watch("k")
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(list, watch) for _ in range(4)]
        later(watch.close).join()
        assert [each.result(5) for each in waiting] == [[], [], [], []]


def test_close_of_the_client_ends_its_watches(client: SyncClient) -> None:
    watch = client.watch("k")
    timer = later(client.close)
    with pytest.raises(Unavailable, match="closed"):
        next(watch)
    timer.join()
    watch.close()


def test_threads_that_share_a_watch_get_each_event_once(client: SyncClient) -> None:
    watch = client.watch("k", start_revision=2)
    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(take, watch, 25) for _ in range(4)]
        for number in range(100):
            client.put("k", str(number))
        revisions = sorted(each for worker in workers for each in worker.result(10))
    assert revisions == list(range(2, 102))


def take(watch: SyncWatch, count: int) -> list[int]:
    return [watch.next(timeout_s=5).revision for _ in range(count)]


def test_watch_keeps_its_client_open(node: ThreadedNode) -> None:
    watch = SyncClient([node.address], follow_leader=False).watch("k", start_revision=2)
    gc.collect()
    with SyncClient([node.address], follow_leader=False) as other:
        other.put("k", "1")
    assert watch.next(timeout_s=5).events[0].kv.value == b"1"


# The end


def test_close_ends_the_calls_that_wait(node: ThreadedNode, client: SyncClient) -> None:
    client.put("a", "1")
    node.group.held = True
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(client.put, "a", str(number)) for number in range(4)]
        later(client.close).join()
        errors = [each.exception(5) for each in waiting]
    assert all(isinstance(each, OutcomeUnknown) for each in errors)


def test_close_ends_a_put_many_that_waits(node: ThreadedNode, client: SyncClient) -> None:
    client.put("a", "1")
    node.group.held = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.put_many, ((f"k/{number}", "v") for number in range(10_000)))
        later(client.close).join()
        assert isinstance(waiting.exception(5), OutcomeUnknown | Unavailable)


def test_closed_client_refuses_calls(client: SyncClient) -> None:
    client.put("a", "1")
    client.close()
    client.close()
    for call in (lambda: client.put("a", "2"), lambda: client.watch("a"), lambda: client.put_many([("a", "1")])):
        with pytest.raises(ClientClosed, match="make a new one"):
            call()
    unused = SyncClient(["127.0.0.1:1"])
    unused.close()
    with pytest.raises(ClientClosed):
        unused.get("a")


def test_client_that_is_not_referenced_ends_its_thread(node: ThreadedNode) -> None:
    forgotten = SyncClient([node.address], follow_leader=False)
    forgotten.put("a", "1")
    thread = forgotten._running()._thread
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    thread.join(5)
    assert not thread.is_alive()


def test_connect_returns_a_client_that_has_reached_a_node(node: ThreadedNode) -> None:
    with connect(f"{unused_address()}, {node.address}", follow_leader=False) as connected:
        assert connected.put("a", "1").revision == 2


def test_connect_raises_when_no_node_answers() -> None:
    before = threading.active_count()
    with pytest.raises(Unavailable, match="nothing was done"):
        connect(unused_address(), timeout_s=0.3)
    assert threading.active_count() == before


def test_text_without_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="endpoints"):
        SyncClient(" , ")


# Processes


def test_client_used_before_a_fork_is_refused_in_the_child_only(node: ThreadedNode, client: SyncClient) -> None:
    client.put("a", "1")
    watch = client.watch("a", start_revision=2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            client.put("a", "2")
        except RuntimeError as error:
            code = 0 if "fork" in str(error) else 2
        client.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert client.put("a", "3").revision == 3
    assert watch.next(timeout_s=5).revision == 2


PROGRAM = """
import os, sys
from node.client.sync_client import SyncClient
client = SyncClient([sys.argv[1]], follow_leader=False)
{}
"""


def run(address: str, lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-c", PROGRAM.format(lines), address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_unused_client_works_in_the_child_of_a_fork(node: ThreadedNode) -> None:
    ended = run(
        node.address,
        "child = os.fork()\nclient.put(f'pid/{child == 0}', 'v')\nif child: assert os.waitpid(child, 0)[1] == 0",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with SyncClient([node.address], follow_leader=False) as other:
        assert [kv.key for kv in other.range("pid/", prefix=True).kvs] == [b"pid/False", b"pid/True"]


def test_process_that_never_closes_ends_without_noise(node: ThreadedNode) -> None:
    ended = run(node.address, "client.put('a', '1')\nwatch = client.watch('a')\nprint('done')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")


def unused_address() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"
