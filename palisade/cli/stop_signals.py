"""Commands that hold something release it before a signal ends them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """This process received a signal to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


async def stoppable(work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`. SIGTERM and SIGHUP cancel it, so that it can release what it holds. Then raises Stopped."""
    loop, task = asyncio.get_running_loop(), asyncio.ensure_future(work())
    received: list[int] = []

    def stop(number: int) -> None:
        received.append(number)
        task.cancel()

    for number in _STOP_SIGNALS:
        loop.add_signal_handler(number, stop, number)
    try:
        return await task
    except asyncio.CancelledError:
        if received:
            raise Stopped(received[0]) from None
        raise
    finally:
        for number in _STOP_SIGNALS:
            loop.remove_signal_handler(number)
