"""The interface of the server (`server.StreamServer`) as its connections use it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from palisade.api.stream.calls import Calls
from palisade.api.stream.lease_port import LeasePort
from palisade.api.stream.session_auth import SessionAuth
from palisade.base.connection_limit import ConnectionLimit
from palisade.base.wrong_port import ClientProtocol
from palisade.service.key_values import KeyValues


class ServerPort(Protocol):
    """`connections`: the open ones, in the order in which they were accepted."""

    service: KeyValues
    lease_port: LeasePort | None
    room: ConnectionLimit
    calls: Calls
    connections: dict[Any, None]
    frame_bytes_max: int
    loop: asyncio.AbstractEventLoop

    def now(self) -> float: ...
    def misdirected(self, what: ClientProtocol) -> str:
        """Logs a client of another protocol, and returns which port it should use."""
        ...

    def welcome(self) -> Any: ...
    def identity(self) -> Any: ...
    def session_auth(self, transport: asyncio.Transport | None, run: Callable[[Any], Any]) -> SessionAuth | None: ...
