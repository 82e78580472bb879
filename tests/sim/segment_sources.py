"""Where simulated data nodes fetch segments from: each other, over the simulated network, and a store of files."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from palisade.base.http_request import NoAnswer, error_text
from palisade.segments.names import Wanted
from palisade.segments.peers import TIMEOUT_S, SegmentPeers
from palisade.segments.sources import SourceFailed
from palisade.wire.segment_errors import NoSuchSegment

if TYPE_CHECKING:
    from tests.sim.machine import SimMachine
    from tests.sim.world import World

DOWN = 0.3
"""The share of requests to the store of files that fail."""
FETCH_S = 0.05


class SimSegmentPeers(SegmentPeers):
    """`SegmentPeers` over the simulated network: asks as GET /v1/segments/<segment>/file does."""

    def __init__(self, machine: SimMachine) -> None:
        super().__init__()
        self._machine = machine

    async def _download(self, address: str, name: str, wanted: Wanted) -> bytes:
        async def read(node: Any) -> bytes:
            holder = node.segments.local.holder
            if holder is None:
                raise NoSuchSegment("it stores no segments")
            content: bytes = (await holder.read(name, wanted.digest))[0]
            return content

        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._machine.ask(address, read)
        except NoSuchSegment as error:
            raise SourceFailed("does not have it") from error
        except (ConnectionError, TimeoutError) as error:
            raise NoAnswer(address, error_text(error), unreachable=True) from None


class SimOrigin:
    """The store that published files are in; it fails sometimes."""

    name = "the store of files"

    def __init__(self, world: World) -> None:
        self._world = world

    async def get(self, name: str, wanted: Wanted) -> bytes:
        await asyncio.sleep(FETCH_S * self._world.chance.random())
        if wanted.digest not in self._world.segment_files:
            raise SourceFailed("has no such file")
        if self._world.chance.random() < DOWN:
            raise SourceFailed("is down")
        return self._world.segment_files[wanted.digest]

    def close(self) -> None: ...
