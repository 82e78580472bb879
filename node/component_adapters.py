"""The components of a node as the lifecycle sees them: each adapts one object that has to be started and stopped."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Protocol

from palisade.base.address import Address
from palisade.raftgroup.errors import MemberRemoved
from palisade.raftgroup.group import Group
from palisade.raftgroup.removal import FAREWELL_S
from palisade.recovery.lifecycle import Component, ComponentFailed
from palisade.topology.member import TopologyMember

log = logging.getLogger(__name__)


@contextlib.contextmanager
def cause_of_failure() -> Iterator[None]:
    """The underlying error of a failed component, also of one within another: its type decides what the caller of the
    node does. The log names the components."""
    try:
        yield
    except ComponentFailed as failed:
        log.error("%s", failed)
        cause = failed.cause
        while isinstance(cause, ComponentFailed):
            cause = cause.cause
        raise cause from cause.__cause__


class GroupPart(Component):
    def __init__(self, group: Group) -> None:
        self._group = group

    async def start(self) -> None:
        await self._group.start()

    async def run(self) -> None:
        """Raises the error that made the group stop itself."""
        failed = self._group.failed
        if failed is not None:
            await asyncio.wait({failed})
            failed.result()

    async def stop(self) -> None:
        """Hands leadership over."""
        await self._group.close()


@contextlib.asynccontextmanager
async def group_ends_first() -> AsyncIterator[None]:
    """A removed member is ended by its group, which first waits until pending responses are sent. Other components that
    detect the removal earlier do not end the node."""
    try:
        yield
    except MemberRemoved:
        await asyncio.sleep(2 * FAREWELL_S)
        raise


class Background(Component):
    """A task that runs as long as the node does."""

    def __init__(self, run: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._run = run

    async def run(self) -> None:
        async with group_ends_first():
            await self._run()


class ListeningServer(Protocol):
    async def start(self, host: str, port: int) -> None: ...
    def close(self) -> Awaitable[None]: ...


class ServerPart(Component):
    """Stopped before the parts that it serves from, so new requests are refused first."""

    def __init__(self, server: ListeningServer, address: Address) -> None:
        self._server = server
        self._address = address

    async def start(self) -> None:
        """Raises OSError if the port cannot be bound."""
        try:
            await self._server.start(self._address.host, self._address.port)
        except BaseException:
            await self._server.close()
            raise

    async def stop(self) -> None:
        await self._server.close()


class TopologyComponent(Component):
    def __init__(self, member: TopologyMember) -> None:
        self._member = member

    async def run(self) -> None:
        async with group_ends_first():
            await self._member.run()

    async def stop(self) -> None:
        await self._member.leave()
