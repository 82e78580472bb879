"""Answers that have no end of their own: known to the server, so that it can end them when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

STREAMS: web.AppKey[set[asyncio.Task[Any]]] = web.AppKey("streams", set)


@contextmanager
def endless(request: web.Request) -> Iterator[None]:
    """Around the work of a handler that ends when its client hangs up, or when the server stops."""
    streams, task = request.app[STREAMS], asyncio.current_task()
    if task is not None:
        streams.add(task)
    try:
        yield
    finally:
        if task is not None:
            streams.discard(task)
