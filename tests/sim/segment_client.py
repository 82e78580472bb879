"""The common part of the clients of segments: they ask nodes as the HTTP API does, and expect any refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from palisade.base.errors import PalisadeError
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED

T = TypeVar("T")

REFUSED = (*EXPECTED, PalisadeError, ConnectionError, TimeoutError)
"""The outcomes of a request that is not executed, or may be."""


class SegmentClient:
    """`going`: whether clients continue."""

    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self.client, self.world, self.going = client, client.world, going
        self.chance = client.world.chance

    async def ask(self, host: Host, work: Callable[[Any], Awaitable[T]], within_s: float = TIMEOUT_S) -> T:
        """Raises one of `REFUSED`."""
        async with asyncio.timeout(within_s):
            return await self.world.ask(self.client.process, self.client.name, host.http, work)
