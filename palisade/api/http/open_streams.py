"""Responses without an end of their own: registered at the server, which ends them when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aiohttp import web

STREAMS: web.AppKey[set[asyncio.Task[Any]]] = web.AppKey("streams", set)


@contextmanager
def endless(request: web.Request) -> Iterator[None]:
    """Wraps a handler that ends when its client disconnects or the server stops."""
    streams, task = request.app[STREAMS], asyncio.current_task()
    if task is not None:
        streams.add(task)
    try:
        yield
    finally:
        if task is not None:
            streams.discard(task)
