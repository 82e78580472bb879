"""The blocking client against the stream of one node: threads, deadlines, Ctrl-C, closing, forks (issue 15)."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from palisade.client import Client, OutcomeUnknown, Unavailable
from palisade.client.operations import Compare, Delete, Get, Put, Txn
from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import Compacted, KeyTooLarge
from palisade.metastore.requests import Put as PlainPut
from palisade.metastore.results import PutResult
from tests.support.threaded_node import ThreadedNode, interrupt, later, unused_address

# Calls


def test_sync_client_reads_what_it_wrote(blocking: SyncClient) -> None:
    first = blocking.put("a", "1")
    second = blocking.put(b"a", b"2", prev_kv=True)
    found = blocking.get("a")
    assert (first.revision, second.revision) == (2, 3)
    assert second.prev_kv is not None
    assert second.prev_kv.value == b"1"
    assert found is not None
    assert (found.key, found.value) == (b"a", b"2")
    assert blocking.get("b") is None
    assert [kv.key for kv in blocking.range("", prefix=True).kvs] == [b"a"]
    assert blocking.delete("a").deleted == 1


def test_sync_client_raises_the_errors_of_the_client(blocking: SyncClient) -> None:
    blocking.put("a", "1")
    blocking.put("a", "2")
    blocking.compact(3)
    with pytest.raises(KeyTooLarge, match="4096"):
        blocking.put("k" * 5000)
    with pytest.raises(Compacted) as refused:
        blocking.get("a", revision=2)
    assert refused.value.minimal_revision == 3
    with pytest.raises(TypeError, match="bytes or text"):
        blocking.put(1)  # type: ignore[arg-type]


def test_txn_takes_text_and_bytes(blocking: SyncClient) -> None:
    made = blocking.txn([Compare.absent("a")], [Put("a", "1"), Txn((), [Put("b", b"2")])], [Get("a")])
    assert made.succeeded
    changed = blocking.txn([Compare.value_is("a", "1"), Compare.exists("b")], [Delete("a", "c"), PlainPut(b"c")])
    assert changed.succeeded
    assert [kv.key for kv in blocking.range("", prefix=True).kvs] == [b"c"]
    unchanged = blocking.txn([Compare.revision_is("c", 1)], [Put("c", "x")])
    assert not unchanged.succeeded


def test_txn_refuses_values_that_are_not_operations(blocking: SyncClient) -> None:
    with pytest.raises(TypeError, match="not str"):
        blocking.txn([], ["a"])  # type: ignore[list-item]


def test_catalog_and_cluster_calls_answer(blocking: SyncClient) -> None:
    made = blocking.catalog_do("create-database", {"database": "plant"}, procedure="p1", wait_s=2)
    assert (made["state"], made["released"]) == ("done", True)
    assert [each["name"] for each in blocking.catalog_objects("databases")] == ["plant"]
    assert blocking.members()[0]["id"] == "n1"
    lease = blocking.lease_grant(60)
    assert blocking.leases() == (lease.id,)


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


@pytest.mark.parametrize("unknown", ["descending", "range_start"])
def test_range_names_an_unknown_option(blocking: SyncClient, unknown: str) -> None:
    options: dict[str, Any] = {unknown: True}
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{unknown}'"):
        blocking.range("k/", **options)


def test_client_has_the_methods_that_are_compared() -> None:
    assert {"put", "get", "range", "delete", "txn", "put_many", "catalog_do", "status"} <= set(public_coroutines())


# Threads


def test_many_threads_share_one_connection(threaded: ThreadedNode, blocking: SyncClient) -> None:
    def work(thread: int) -> list[PutResult]:
        return [blocking.put(f"k/{thread}/{number}", str(number)) for number in range(50)]

    with ThreadPoolExecutor(32) as pool:
        results = [each for found in pool.map(work, range(32)) for each in found]
    assert len({each.revision for each in results}) == 32 * 50
    assert blocking.range("k/", prefix=True, count_only=True).count == 32 * 50
    assert threaded.connections() == 1


def test_requests_of_several_threads_are_pipelined(threaded: ThreadedNode, blocking: SyncClient) -> None:
    threaded.group.held = True
    with ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(blocking.put, f"k/{number}", "v") for number in range(16)]
        threaded.until_submitted(16)
        threaded.do(threaded.group.release)
        assert len({each.result(5).revision for each in waiting}) == 16


def test_thread_storm_with_closing_clients_ends(threaded: ThreadedNode) -> None:
    ended = []

    def work(number: int) -> None:
        with SyncClient([threaded.address], follow_leader=False, timeout_s=5) as own:
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


def test_put_many_reads_its_items_in_the_thread_of_the_caller(blocking: SyncClient) -> None:
    threads, counts = set(), []

    def pairs() -> Iterator[tuple[str, str]]:
        for number in range(5000):
            threads.add(threading.current_thread())
            yield f"k/{number:04}", str(number)

    def progress(count: int) -> None:
        threads.add(threading.current_thread())
        counts.append(count)

    assert blocking.put_many(pairs(), outstanding=300, progress=progress) == 5000
    assert threads == {threading.current_thread()}
    assert counts == sorted(counts)
    assert blocking.range("k/", prefix=True, count_only=True).count == 5000


def test_put_many_keeps_the_order_of_one_key(blocking: SyncClient) -> None:
    assert blocking.put_many((("a", str(number)) for number in range(3000)), outstanding=2000) == 3000
    found = blocking.get("a")
    assert found is not None
    assert (found.value, found.version) == (b"2999", 3000)


def test_put_many_raises_the_first_refusal(blocking: SyncClient) -> None:
    def endless() -> Iterator[tuple[str, str]]:
        yield "k" * 5000, "too long"
        while True:
            yield "k", "v"

    with pytest.raises(KeyTooLarge):
        blocking.put_many(endless())


def test_put_many_raises_the_error_of_its_items(blocking: SyncClient) -> None:
    def broken() -> Iterator[tuple[str, str]]:
        yield from ((f"k/{number}", "v") for number in range(1000))
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        blocking.put_many(broken())
    assert blocking.put("a", "1").revision


def test_callback_of_the_client_may_not_wait_for_it(blocking: SyncClient) -> None:
    async def inside() -> None:
        blocking.get("a")

    with pytest.raises(RuntimeError, match="wait for itself"):
        blocking._running().run(inside())


# Deadlines and interruptions


def test_deadline_of_a_call_holds(threaded: ThreadedNode, blocking: SyncClient) -> None:
    blocking.put("a", "1")
    threaded.group.held = True
    begun = time.monotonic()
    with pytest.raises(OutcomeUnknown, match="the deadline passed"):
        blocking.put("a", "2", timeout_s=0.3)
    assert 0.25 < time.monotonic() - begun < 3


def test_call_without_a_node_ends_at_its_deadline() -> None:
    with SyncClient([unused_address()], timeout_s=0.3) as alone, pytest.raises(Unavailable, match="nothing was done"):
        alone.put("a", "1")


def test_ctrl_c_ends_a_waiting_call_and_cancels_it(threaded: ThreadedNode, blocking: SyncClient) -> None:
    blocking.put("a", "1")
    threaded.group.held = True
    timer = later(interrupt)
    with pytest.raises(KeyboardInterrupt):
        blocking.put("a", "2")
    timer.join()
    threaded.do(threaded.group.release)
    assert blocking.put("b", "1").revision
    assert blocking._running().run(calls_under_way()) == 0


async def calls_under_way() -> int:
    """In the thread of the client: those of `StoreApi`."""
    return sum("StoreApi" in repr(each.get_coro()) for each in asyncio.all_tasks())
