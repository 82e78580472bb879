"""Which node a client is connected with: the leader where it is known and can be had, else whoever answers; and never
for long one that knows no leader while another one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palisade.client.connection import ClientConnection
from palisade.client.endpoints import Endpoints
from palisade.raftgroup.errors import RaftError
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.credentials import Credentials

CONNECT_S = 2.0

FAILURES = (OSError, RaftError, TimeoutError, AuthorizationError)


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """What `member`, reached at `address`, says of who leads. `streams`: member -> 'host:port'."""

    address: str
    member: object
    leader: str | None
    streams: Mapping[str, str]


class Connector:
    """Opens connections for one session. `on_frame` hears what comes on all of them. `shown`: who it is."""

    def __init__(
        self,
        route: Endpoints,
        on_frame: Callable[[int, Any], None],
        timeout_s: float,
        shown: Credentials | None = None,
    ) -> None:
        self._shown = shown
        self._route = route
        self._on_frame = on_frame
        self._timeout_s = timeout_s

    async def connect(self) -> tuple[ClientConnection, Whereabouts]:
        """To the leader, if the current address of the route names one. Raises what that address comes to."""
        link, found = await self._greet(self._route.current())
        try:
            better = await self.better(found) if found.leader is not None else None
        except BaseException:
            link.abort()
            raise
        if better is None:
            return link, found
        link.close()
        return better

    def wants_better(self, now: Whereabouts) -> bool:
        """Whether somebody else would be better to be connected with, also if that one is to be avoided for a while."""
        if now.leader is None:
            return bool(self._route.others(now.address))
        return self._route.follows_leader and now.leader != now.member

    async def better(self, now: Whereabouts) -> tuple[ClientConnection, Whereabouts] | None:
        """A connection with the leader; or, from a node that knows none, with one that does."""
        for address in self._better_addresses(now):
            try:
                link, found = await self._greet(address)
            except FAILURES:
                self._route.avoid(address, self._now())
                continue
            if found.leader is not None:
                return link, found
            link.close()
        return None

    def _better_addresses(self, now: Whereabouts) -> list[str]:
        if now.leader is None:
            return self._route.others(now.address)
        leader = self._route.better(now.member, now.leader, now.streams, self._now())
        return [] if leader is None else [leader]

    async def _greet(self, address: str) -> tuple[ClientConnection, Whereabouts]:
        loop = asyncio.get_running_loop()
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(CONNECT_S):
            _, link = await loop.create_connection(
                lambda: ClientConnection(loop, self._on_frame), host.strip("[]"), int(port)
            )
            try:
                welcome = await link.greet(self._timeout_s, self._shown)
            except BaseException:
                link.abort()
                raise
        found = whereabouts(address, welcome.get("member"), welcome.get("leader"), welcome.get("streams"))
        self._route.learn(found.streams.values())
        return link, found

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def whereabouts(address: str, member: object, leader: object, streams: object) -> Whereabouts:
    """Of what a node has said, whatever it was."""
    known = {str(name): str(stream) for name, stream in streams.items()} if type(streams) is dict else {}
    return Whereabouts(address, member, leader if isinstance(leader, str) else None, known)
