"""The blocking client when it is closed, forgotten, or carried through a fork (issue 15)."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from palisade.client import OutcomeUnknown, Unavailable
from palisade.client.client_closed import ClientClosed
from palisade.client.sync_client import SyncClient, connect
from tests.support.threaded_node import ThreadedNode, later, unused_address


def test_close_ends_the_calls_that_wait(threaded: ThreadedNode, blocking: SyncClient) -> None:
    blocking.put("a", "1")
    threaded.group.held = True
    with ThreadPoolExecutor(4) as pool:
        waiting = [pool.submit(blocking.put, "a", str(number)) for number in range(4)]
        later(blocking.close).join()
        errors = [each.exception(5) for each in waiting]
    assert all(isinstance(each, OutcomeUnknown) for each in errors)


def test_close_ends_a_put_many_that_waits(threaded: ThreadedNode, blocking: SyncClient) -> None:
    blocking.put("a", "1")
    threaded.group.held = True
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(blocking.put_many, ((f"k/{number}", "v") for number in range(10_000)))
        later(blocking.close).join()
        assert isinstance(waiting.exception(5), OutcomeUnknown | Unavailable)


def test_closed_client_refuses_calls(blocking: SyncClient) -> None:
    blocking.put("a", "1")
    blocking.close()
    blocking.close()
    for call in (lambda: blocking.put("a", "2"), lambda: blocking.watch("a"), lambda: blocking.put_many([("a", "1")])):
        with pytest.raises(ClientClosed, match="create a new one"):
            call()
    unused = SyncClient(["127.0.0.1:1"])
    unused.close()
    with pytest.raises(ClientClosed):
        unused.get("a")


def test_client_that_is_not_referenced_ends_its_thread(threaded: ThreadedNode) -> None:
    forgotten = SyncClient([threaded.address], follow_leader=False)
    forgotten.put("a", "1")
    thread = forgotten._running()._thread
    gone = weakref.ref(forgotten)
    del forgotten
    gc.collect()
    assert gone() is None
    thread.join(5)
    assert not thread.is_alive()


def test_connect_returns_a_client_that_has_reached_a_node(threaded: ThreadedNode) -> None:
    with connect(f"{unused_address()}, {threaded.address}", follow_leader=False) as connected:
        assert connected.put("a", "1").revision == 2


def test_connect_raises_if_no_node_responds() -> None:
    before = threading.active_count()
    with pytest.raises(Unavailable, match="nothing was done"):
        connect(unused_address(), timeout_s=0.3)
    assert threading.active_count() == before


def test_text_without_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match="endpoints"):
        SyncClient(" , ")


def test_client_used_before_a_fork_is_refused_in_the_child_only(threaded: ThreadedNode, blocking: SyncClient) -> None:
    blocking.put("a", "1")
    watch = blocking.watch("a", start_revision=2)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            blocking.put("a", "2")
        except RuntimeError as error:
            code = 0 if "fork" in str(error) else 2
        blocking.close()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert blocking.put("a", "3").revision == 3
    assert watch.next(timeout_s=5).revision == 2


PROGRAM = """
import os, sys
from palisade.client.sync_client import SyncClient
client = SyncClient([sys.argv[1]], follow_leader=False)
{}
"""


def run(address: str, lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-X", "dev", "-c", PROGRAM.format(lines), address]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_unused_client_works_in_the_child_of_a_fork(threaded: ThreadedNode) -> None:
    ended = run(
        threaded.address,
        "child = os.fork()\nclient.put(f'pid/{child == 0}', 'v')\nif child: assert os.waitpid(child, 0)[1] == 0",
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    with SyncClient([threaded.address], follow_leader=False) as other:
        assert [kv.key for kv in other.range("pid/", prefix=True).kvs] == [b"pid/False", b"pid/True"]


def test_process_that_never_closes_its_client_ends_without_output(threaded: ThreadedNode) -> None:
    ended = run(threaded.address, "client.put('a', '1')\nwatch = client.watch('a')\nprint('done')")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
