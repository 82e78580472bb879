"""Checks the caller's permissions again during long responses: a watch does so before each event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from palisade.service.authorization.needs import Needs

Reauthorize = Callable[[Needs], Awaitable[None]]
"""Raises AuthorizationError if the caller does not have these rights, or has lost them."""
_RequestKey: Any = getattr(web, "RequestKey", lambda name, _: f"palisade.{name}")
"""Newer versions of aiohttp require keys of this type."""
REAUTHORIZE: Any = _RequestKey("authorization", object)


async def permit_all(_: Needs) -> None:
    """Where authorization is off."""


def reauthorize_of(request: web.Request) -> Reauthorize:
    found: Reauthorize = request.get(REAUTHORIZE, permit_all)
    return found
