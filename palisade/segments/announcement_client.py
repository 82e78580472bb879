"""Writes the announcements of a data node through the stream of the members."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from palisade.client.client import CLIENT_ID_BYTES, Client
from palisade.metastore.requests import Compare, DeleteRange, Put, RequestId, Txn
from palisade.metastore.results import TxnResult
from palisade.segments.settled_writes import SettledWrites
from palisade.wire.credentials import Credentials
from palisade.wire.segment_errors import NoMemberKnown

TIMEOUT_S = 15.0


class AnnouncementClient:
    """An `announcements.AnnouncementStore`. `addresses`: stream addresses of the known members.

    A member gives only its own address, with `follow_leader` False: it forwards to the leader, and its Raft group
    replaces a frozen leader within about 1.5 s, whereas a client stays connected to it for several seconds."""

    def __init__(
        self, addresses: Callable[[], list[str]], credentials: Credentials | None, *, follow_leader: bool = True
    ) -> None:
        self._addresses, self._credentials, self._follow_leader = addresses, credentials, follow_leader
        self._client: Client | None = None
        self._known: list[str] = []
        self._writes = SettledWrites(secrets.token_hex(CLIENT_ID_BYTES), self._send)

    async def _connected(self) -> Client:
        """Raises NoMemberKnown."""
        addresses = sorted(self._addresses())
        if not addresses:
            raise NoMemberKnown("no member of the cluster is known yet")
        if self._client is None or addresses != self._known:
            await self.close()
            self._known = addresses
            self._client = await Client(
                addresses, timeout_s=TIMEOUT_S, credentials=self._credentials, follow_leader=self._follow_leader
            ).__aenter__()
        return self._client

    @property
    def trouble(self) -> str | None:
        """Why no answer can arrive at the moment; None if one can."""
        return None if self._client is None else self._client.trouble

    async def lease(self, lease: int, ttl_ms: int) -> int:
        return await (await self._connected()).segments_lease(lease, ttl_ms)

    async def announce(self, compare: Iterable[Compare], writes: Iterable[Put | DeleteRange]) -> TxnResult:
        return await self._writes.write(Txn(tuple(compare), tuple(writes)))

    async def _send(self, request: Txn, request_id: RequestId) -> TxnResult:
        return await (await self._connected()).segments_announce(request, request_id)

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
