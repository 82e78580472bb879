"""Work in a thread that does not delay the end of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from palisade.cli.daemon_thread import in_daemon_thread, is_working


async def test_thread_is_working_until_the_work_has_ended() -> None:
    go_on = threading.Event()
    waiting = asyncio.ensure_future(in_daemon_thread(go_on.wait))
    await asyncio.sleep(0)
    assert is_working()
    go_on.set()
    assert await waiting


async def test_thread_that_has_delivered_its_result_is_not_working(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread lives a little longer than its work. `journal append` then ended by `os._exit`, without the hooks of the
    interpreter; in a test, the whole test process ended."""
    loop, may_end = asyncio.get_running_loop(), threading.Event()
    deliver = loop.call_soon_threadsafe

    def lives_on(callback: Callable[..., Any], *arguments: Any) -> None:
        deliver(callback, *arguments)
        may_end.wait(10)

    monkeypatch.setattr(loop, "call_soon_threadsafe", lives_on)
    try:
        assert await in_daemon_thread(lambda: 1) == 1
        assert not is_working()
    finally:
        may_end.set()
