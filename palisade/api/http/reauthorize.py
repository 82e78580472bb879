"""May who asked still do this? For answers that go on: a watch asks before each thing that it tells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from palisade.service.authorization.needs import Needs

Still = Callable[[Needs], Awaitable[None]]
"""Raises AuthorizationError where who asked may not (any more)."""
_RequestKey: Any = getattr(web, "RequestKey", lambda name, _: f"palisade.{name}")
"""What newer versions of aiohttp want as a key."""
STILL: Any = _RequestKey("authorization", object)


async def everybody(_: Needs) -> None:
    """Where nobody is asked who they are."""


def still_of(request: web.Request) -> Still:
    found: Still = request.get(STILL, everybody)
    return found
