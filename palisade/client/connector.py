"""Chooses the node to connect to: the leader if it is known and reachable, else any node that responds.

A node that knows no leader is left when another node knows one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palisade.base.address import Address
from palisade.client.connection import ClientConnection
from palisade.client.endpoints import Endpoints
from palisade.raftgroup.errors import RaftError
from palisade.wire.auth_errors import AuthorizationError
from palisade.wire.credentials import Credentials

CONNECT_S = 2.0

FAILURES = (OSError, RaftError, TimeoutError, AuthorizationError, ValueError)
"""ValueError: an address that the cluster announced is not one."""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The leader as announced by `member`, which is reached at `address`. `streams`: member -> 'host:port'."""

    address: str
    member: object
    leader: str | None
    streams: Mapping[str, str]


class Connector:
    """Opens connections for one session. `on_frame` gets the frames of all of them. `shown`: the credentials."""

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
        """To the leader if the node at the current address knows it. Raises the error of connecting to that address."""
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
        """Whether another node would be better, even if that node is currently avoided."""
        if now.leader is None:
            return bool(self._route.others(now.address))
        return self._route.follows_leader and now.leader != now.member

    async def better(self, now: Whereabouts) -> tuple[ClientConnection, Whereabouts] | None:
        """A connection to the leader or, if this node knows none, to a node that does; None if there is none."""
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
        parsed = Address.parse(address)
        async with asyncio.timeout(CONNECT_S):
            _, link = await loop.create_connection(
                lambda: ClientConnection(loop, self._on_frame), parsed.host, parsed.port
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
    """From the fields of a WELCOME or LEADER frame, whatever their types."""
    known = {str(name): str(stream) for name, stream in streams.items()} if type(streams) is dict else {}
    return Whereabouts(address, member, leader if isinstance(leader, str) else None, known)
