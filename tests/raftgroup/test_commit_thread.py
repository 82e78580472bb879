"""Waiting for a commit in place, and being woken by the bell (`base.commit_thread`)."""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Iterator

import pytest

from palisade.base.commit_thread import BUSY, Bell, BusyMeter, CommitThread


@pytest.fixture
def thread() -> Iterator[CommitThread]:
    made = CommitThread("test")
    yield made
    made.close()


async def test_bell_is_readable_once_the_work_is_done(thread: CommitThread) -> None:
    loop, heard, may_end = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    loop.add_reader(thread.bell, heard.set)
    commit = thread.submit(may_end.wait)
    assert not commit.wait(0.0)
    assert not heard.is_set()
    may_end.set()
    await asyncio.wait_for(heard.wait(), 10)
    loop.remove_reader(thread.bell)
    assert commit.wait(0.0)
    assert commit.error is None


def test_hushed_bell_is_readable_after_the_next_ring() -> None:
    bell = Bell()
    heard = lambda: bool(select.select([bell], [], [], 0)[0])  # noqa: E731
    for _ in range(3):
        assert not heard()
        bell.ring()
        bell.ring()
        assert heard()
        bell.hush()
    bell.close()


def test_bell_without_reader_never_blocks(thread: CommitThread) -> None:
    """A full pipe must not block the ringing thread: it commits."""
    for _ in range(200_000):
        thread.bell.ring()
    assert thread.submit(lambda: None).wait(10)


def test_exception_of_the_work_is_the_task_error(thread: CommitThread) -> None:
    commit = thread.submit(lambda: 1 // 0)
    assert commit.wait(10)
    assert isinstance(commit.error, ZeroDivisionError)


def test_busy_meter_measures_the_work_since_its_last_call() -> None:
    worked, now = iter([5.0, 5.0 + BUSY + 0.1, 5.0 + BUSY + 0.2]), iter([70.0, 71.0, 72.0])
    meter = BusyMeter(lambda: next(worked), lambda: next(now))
    assert meter.busy()
    assert not meter.busy()
