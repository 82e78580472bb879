"""One connection of the client, without a node."""

from __future__ import annotations

import asyncio
import gc
from unittest.mock import Mock

import pytest

from palisade.client.connection import ClientConnection
from palisade.raftgroup.errors import Unavailable


async def test_connection_that_ends_before_its_greeting_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Issue 16: "Future exception was never retrieved", if an attempt was cancelled between connect and greeting."""
    connection = ClientConnection(asyncio.get_running_loop(), Mock())
    connection.connection_made(Mock())
    connection.connection_lost(None)
    assert connection.closed.result() == "the node closed the connection"
    del connection
    gc.collect()
    assert caplog.messages == []


async def test_greeting_on_a_connection_that_has_ended_is_refused() -> None:
    connection = ClientConnection(asyncio.get_running_loop(), Mock())
    connection.connection_made(Mock())
    connection.connection_lost(ConnectionResetError("reset by peer"))
    with pytest.raises(Unavailable, match="reset by peer"):
        await connection.greet(5.0)
