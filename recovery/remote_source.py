"""A member of the Raft group as a source of changes for another node, over HTTP (`palisade/api/http/feed.py` answers).

Any member that answers is used; a source keeps nothing between two requests, so the next may go to another member.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp

from palisade.base.http_request import Addresses, HttpRequests, NoAnswer
from palisade.recovery import feed_messages as wire
from palisade.recovery.errors import PinRefused, SourceCompacted, SourceUnavailable
from palisade.recovery.ports import Chunk, ClusterSums, SourceState
from palisade.vault.change import Revision

TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 512 << 20
"""A member stops at half a MiB, but one revision is never split, and a delete of a range has no size limit."""
SAID_BYTES_MAX = 300

T = TypeVar("T")


class RemoteSource:
    """A `recovery.ports.ClusterSource`. `addresses`: HTTP addresses of members, called again for every request.

    Reads are of the history of the last requested state: if a member has another history, because a backup was restored
    meanwhile, SourceCompacted is raised."""

    def __init__(
        self, node: str, addresses: Callable[[], Sequence[str]], headers: Mapping[str, str] | None = None
    ) -> None:
        """`headers`: they authenticate this node to the members."""
        self._node = node
        self._addresses = Addresses(addresses)
        self._requests = HttpRequests(headers, timeout_s=TIMEOUT_S)
        self._history: wire.History | None = None
        """The history of the latest state."""

    async def close(self) -> None:
        await self._requests.close()

    async def state(self, chain_at: int) -> SourceState:
        state = await self._ask("state", [chain_at], wire.to_state)
        self._history = state.cluster_id, state.generation
        return state

    async def changes(self, first: int, last: int) -> Sequence[Revision]:
        return await self._ask("changes", [first, last, self._history], wire.to_changes)

    async def pin(self, revision: int, life_s: float) -> float:
        question = [self._node, revision, max(1, int(life_s * 1000))]
        return await self._ask("pin", question, wire.number) / 1000

    async def unpin(self) -> None:
        await self._ask("unpin", [self._node], lambda _: None)

    async def sums(self, revision: int) -> ClusterSums:
        return await self._ask("sums", [revision, self._history], wire.to_sums)

    async def rows(self, revision: int, buckets: bytes, newer_than: int, start: bytes, end: bytes | None) -> Chunk:
        return await self._ask("rows", [revision, buckets, newer_than, start, end, self._history], wire.to_chunk)

    async def spans(self, revision: int, start: bytes) -> Chunk:
        return await self._ask("spans", [revision, start, self._history], wire.to_chunk)

    async def fingerprints(self, revision: int, buckets: bytes, start: bytes, end: bytes | None) -> Chunk:
        return await self._ask("fingerprints", [revision, buckets, start, end, self._history], wire.to_chunk)

    async def _ask(self, name: str, question: list[Any], read: Callable[[Any], T]) -> T:
        """Raises SourceUnavailable, SourceCompacted, PinRefused."""
        trouble = "no address of a member of the Raft group is known"
        for address in self._addresses.in_order():
            try:
                status, content = await self._send(address, name, wire.pack(question))
                if status == 200:
                    found = read(wire.unpack(content))
                    self._addresses.answered(address)
                    return found
                trouble = f"{address}: {_refusal(wire.unpack(content))}"
            except NoAnswer as error:
                trouble = f"{address}: {error.reason}"
            except wire.BadFeed as error:
                trouble = f"{address}: {error}"
        raise SourceUnavailable(trouble)

    async def _send(self, address: str, name: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": wire.CONTENT_TYPE}
        async with self._requests.open(address, f"/v1/feed/{name}", "POST", data=body, headers=headers) as response:
            if response.content_type != wire.CONTENT_TYPE:
                said = await response.content.read(SAID_BYTES_MAX)
                raise OSError(f"HTTP {response.status}: {said.decode(errors='replace')}")
            return response.status, await _read(response)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    """Raises BadFeed for an answer that no member would send."""
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > ANSWER_BYTES_MAX:
            raise wire.BadFeed(f"the answer exceeds {ANSWER_BYTES_MAX} bytes")
    return b"".join(parts)


def _refusal(answer: Any) -> str:
    """Raises refusals that any member would give, and BadFeed. Returns the text of others."""
    kind, text, minimal = wire.to_refusal(answer)
    if kind == "compacted":
        raise SourceCompacted(text, minimal)
    if kind == "pin-refused":
        raise PinRefused(text)
    return text[:SAID_BYTES_MAX]
