"""Chooses the node to connect to: the leader if it is known and reachable, else any node that responds.

A node that knows no leader is left when another node knows one. A frozen node accepts connections and does not respond:
the next address is tried beside it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from palisade.base.address import Address
from palisade.base.network_reason import NO_ANSWER, reason_of
from palisade.client.connection import ClientConnection
from palisade.client.endpoints import Endpoints
from palisade.client.whereabouts import Whereabouts, whereabouts
from palisade.raftgroup.errors import RaftError
from palisade.wire.auth_errors import AuthorizationError, Unauthenticated
from palisade.wire.credentials import Credentials

CONNECT_S = 2.0
STAGGER_S = 0.25
"""After this time without a response, the next address is tried as well (RFC 8305, Happy Eyeballs)."""
BETTER_PART = 0.4
"""The part of the timeout that may be spent on connecting to a better node, such as the leader, which may be frozen.
The rest is for the request at a node that has answered."""
LATE_PART = 0.05
"""A part of the timeout. If the attempt to reach the leader took longer, the node that named the leader is greeted
again."""

FAILURES = (OSError, RaftError, TimeoutError, AuthorizationError, ValueError)
"""ValueError: the cluster announced an invalid address."""


class Connector:
    """Opens connections for one session. `on_frame` gets the frames of all of them. `shown`: the credentials."""

    def __init__(
        self,
        route: Endpoints,
        on_frame: Callable[[int, Any], None],
        timeout_s: float,
        shown: Credentials | None = None,
        waited_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`waited_s`: how long the oldest pending request has waited."""
        self._shown = shown
        self._waited_s = waited_s
        self._route = route
        self._on_frame = on_frame
        self._timeout_s = timeout_s
        self._greetings: dict[asyncio.Task[tuple[ClientConnection, Whereabouts]], str] = {}
        self._better = ""
        self._unreached: dict[str, str] = {}

    @property
    def unreached(self) -> Mapping[str, str]:
        """Why nodes did not answer when they were tried last, by address; empty once a node knows the leader."""
        now = [self._better] if self._better else []
        return {**dict.fromkeys(now, NO_ANSWER), **self._unreached}

    @property
    def silent(self) -> tuple[str, ...]:
        """The addresses from which `connect` waits for a response."""
        return (*self._greetings.values(), *filter(None, [self._better]))

    async def connect(self, failed: Callable[[str, BaseException], None]) -> tuple[ClientConnection, Whereabouts]:
        """To the leader if the first node that responds knows it. `failed` gets each address that does not respond,
        with the error; raises one of these errors if none responds."""
        link, found = await self._first_to_respond(failed)
        responded = self._now()
        try:
            better = await self.better(found) if found.leader is not None else None
        except BaseException:
            link.abort()
            raise
        if better is not None:
            link.close()
            return better
        if self._now() - responded <= LATE_PART * self._timeout_s:
            return link, found
        link.close()
        try:
            return await self._greet(found.address)  # so that the node knows how long the requests have waited
        except FAILURES as error:
            failed(found.address, error)
            raise

    async def _first_to_respond(
        self, failed: Callable[[str, BaseException], None]
    ) -> tuple[ClientConnection, Whereabouts]:
        """The current address has `STAGGER_S` for its response before the next one is tried, too, and so on. If it
        fails within that time, its error is raised. Refused credentials end all attempts."""
        untried = self._route.in_turn()
        greetings = self._greetings
        try:
            while True:
                if untried:
                    address = untried.pop(0)
                    greetings[asyncio.ensure_future(self._greet(address))] = address
                await asyncio.wait(
                    greetings, timeout=STAGGER_S if untried else None, return_when=asyncio.FIRST_COMPLETED
                )
                for greeting in [each for each in greetings if each.done()]:
                    error = greeting.exception()
                    if error is None:
                        self._route.select(greetings.pop(greeting))
                        return greeting.result()
                    address = greetings.pop(greeting)
                    if not isinstance(error, FAILURES):
                        raise error
                    failed(address, error)
                    if isinstance(error, Unauthenticated) or not greetings:
                        raise error
        finally:
            await self._end_greetings()

    async def _end_greetings(self) -> None:
        """Those of addresses that responded too late, or were abandoned."""
        greetings, self._greetings = list(self._greetings), {}
        for greeting in greetings:
            greeting.cancel()
        for late in await asyncio.gather(*greetings, return_exceptions=True):
            if isinstance(late, tuple):
                late[0].abort()

    def avoid(self, address: str) -> None:
        """Do not move to this address for a while: its node does not respond."""
        self._route.avoid(address, self._now())

    def wants_better(self, now: Whereabouts) -> bool:
        """Whether another node would be better, even if that node is currently avoided."""
        if now.leader is None:
            return bool(self._route.others(now.address))
        return self._route.follows_leader and now.leader != now.member

    async def better(self, now: Whereabouts) -> tuple[ClientConnection, Whereabouts] | None:
        """A connection to the leader or, if this node knows none, to a node that does; None if there is none."""
        for address in self._better_addresses(now):
            self._better = address
            try:
                limit_s = BETTER_PART * self._timeout_s
                async with asyncio.timeout(limit_s if limit_s < CONNECT_S else None):
                    link, found = await self._greet(address)
            except FAILURES:
                self.avoid(address)
                continue
            finally:
                self._better = ""
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
        began = self._now()
        try:
            link, found = await self._greeted(address)
        except FAILURES as error:
            self._unreached[address] = reason_of(error)
            raise
        except asyncio.CancelledError:
            if self._now() - began >= STAGGER_S:
                self._unreached.setdefault(address, NO_ANSWER)
            raise
        self._unreached.pop(address, None)
        if found.leader is not None:
            self._unreached.clear()
        return link, found

    async def _greeted(self, address: str) -> tuple[ClientConnection, Whereabouts]:
        loop = asyncio.get_running_loop()
        parsed = Address.parse(address)
        async with asyncio.timeout(CONNECT_S):
            _, link = await loop.create_connection(
                lambda: ClientConnection(loop, self._on_frame), parsed.host, parsed.port
            )
            try:
                welcome = await link.greet(self._timeout_s, self._shown, self._waited_s())
            except BaseException:
                link.abort()
                raise
        found = whereabouts(address, welcome.get("member"), welcome.get("leader"), welcome.get("streams"))
        self._route.learn(found.streams.values())
        return link, found

    def _now(self) -> float:
        return asyncio.get_running_loop().time()
