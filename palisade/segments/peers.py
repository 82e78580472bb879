"""Other nodes as a source: GET /v1/segments/<segment>/file on their HTTP port."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp

from palisade.base.http_request import HttpRequests, NoAnswer, error_text
from palisade.segments.names import Wanted
from palisade.segments.sources import SourceFailed

TIMEOUT_S, CONNECT_S, SILENT_S = 30.0, 2.0, 5.0
COOLING_S = 10.0
"""How long a node that did not answer is skipped, to avoid a timeout for each segment."""


class SegmentPeers:
    """`peer` creates the source for a node; all share one connection pool."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        """`headers`: the credentials of this node."""
        self._requests = HttpRequests(
            headers, timeout_s=TIMEOUT_S, connect_s=CONNECT_S, silent_s=SILENT_S, decompress=False
        )
        self._silent_until: dict[str, float] = {}

    def peer(self, node: str, address: str) -> Peer:
        return Peer(self, node, address)

    async def close(self) -> None:
        await self._requests.close()

    async def get(self, address: str, name: str, wanted: Wanted) -> bytes:
        """Raises SourceFailed."""
        now = asyncio.get_running_loop().time()
        if now < self._silent_until.get(address, 0.0):
            raise SourceFailed(f"did not answer within the last {COOLING_S:.0f} s")
        try:
            return await self._download(address, name, wanted)
        except NoAnswer as error:
            if error.unreachable:
                self._silent_until[address] = now + COOLING_S
            raise SourceFailed(error.reason) from error
        except ValueError as error:
            raise SourceFailed(error_text(error)) from error

    async def _download(self, address: str, name: str, wanted: Wanted) -> bytes:
        path, asked = f"/v1/segments/{name}/file", {"digest": wanted.digest}
        async with self._requests.open(address, path, params=asked, allow_redirects=False) as response:
            if response.status == 404:
                raise SourceFailed("does not have it")
            if response.status != 200:
                raise SourceFailed(f"HTTP {response.status}")
            return await read_up_to(response.content, wanted.file_bytes_max + 1)


class Peer:
    """A `sources.SegmentSource`."""

    def __init__(self, peers: SegmentPeers, node: str, address: str) -> None:
        self._peers, self._node, self._address = peers, node, address

    @property
    def name(self) -> str:
        return self._node

    async def get(self, name: str, wanted: Wanted) -> bytes:
        return await self._peers.get(self._address, name, wanted)


async def read_up_to(content: aiohttp.StreamReader, limit: int) -> bytes:
    """Reads and buffers at most `limit` bytes."""
    parts, size = [], 0
    while size < limit and (part := await content.read(min(limit - size, 1 << 18))):
        parts.append(part)
        size += len(part)
    return b"".join(parts)
