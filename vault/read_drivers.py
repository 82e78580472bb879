"""Runs the steps of a fenced read (`read_policies.py`): in a thread that sleeps, or in a task that awaits."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from palisade.vault.read_policies import Course, Fetch, Fetched, PolicyWait

T = TypeVar("T")
Ask = Callable[[], Any] | None
"""Reads from the cluster; None: not possible."""
Changed = Callable[[float], Awaitable[None]]
"""Waits until the fence page or LV may have changed, or for the given seconds."""


def run(course: Course[T], ask: Ask, now_s: Callable[[], float], sleep: Callable[[float], None]) -> T:
    """Raises what the steps raise; TypeError for an asynchronous `ask`."""
    answer: Any = None
    while True:
        try:
            step = course.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        if isinstance(step, PolicyWait):
            sleep(step.seconds)
            answer = now_s()
        else:
            answer = _asked(ask)


async def run_async(course: Course[T], ask: Ask, now_s: Callable[[], float], changed: Changed | None = None) -> T:
    """Raises what the steps raise. `changed` None: no notification, so the page is polled."""
    answer: Any = None
    while True:
        try:
            step = course.send(answer)
        except StopIteration as end:
            found: T = end.value
            return found
        if isinstance(step, PolicyWait):
            await (asyncio.sleep(step.seconds) if changed is None else changed(step.most))
            answer = now_s()
        else:
            answer = await _awaited(step, ask)


def _asked(ask: Ask) -> Fetched:
    if ask is None:
        return Fetched(possible=False)
    try:
        value = ask()
    except Exception as error:
        return Fetched(error=error)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError("the fetch of this reader is asynchronous: use get_async etc., or pass a synchronous fetch")
    return Fetched(value)


async def _awaited(_: Fetch, ask: Ask) -> Fetched:
    if ask is None:
        return Fetched(possible=False)
    try:
        value = ask()
        return Fetched(await value if inspect.isawaitable(value) else value)
    except Exception as error:
        return Fetched(error=error)
