"""With authorization on and without a user, a cluster refuses every request: `palisade up` prints a remedy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from palisade.cli.credentials import node_credentials
from palisade.cli.supervisor.events import SupervisorEvent
from palisade.client import Client
from palisade.metastore.errors import MetastoreError
from palisade.node.local_layout import Layout
from palisade.raftgroup.errors import RaftError
from palisade.wire.auth_errors import AuthorizationError

PATIENCE_S = 10.0
"""A root password file creates the first user a moment after the first leader is elected."""
STEP_S = 0.5
ASK_S = 5.0
REMEDY = (
    "set PALISADE_ROOT_PASSWORD_FILE to a file with a password of 8 to 256 characters, and start again; it creates the "
    "user root"
)
Emit = Callable[[SupervisorEvent], None]


async def check_first_user(layout: Layout, emit: Emit, patience_s: float = PATIENCE_S) -> None:
    """Report the event `no-user` if authorization is on and no user exists, nor is created within `patience_s`."""
    awaited = "PALISADE_ROOT_PASSWORD_FILE" in os.environ
    until = asyncio.get_running_loop().time() + (patience_s if awaited else 0.0)
    while await lacks_users(layout):
        if asyncio.get_running_loop().time() >= until:
            text = f"authorization is on and there is no user, so every request is refused: {REMEDY}"
            emit(SupervisorEvent("no-user", text, {"remedy": REMEDY}))
            return
        await asyncio.sleep(STEP_S)


async def lacks_users(layout: Layout) -> bool:
    """False if that cannot be found out: another command reports why."""
    endpoints = [str(member.stream) for member in layout.members()]
    try:
        async with Client(endpoints, timeout_s=ASK_S, credentials=node_credentials(os.environ)) as client:
            status = await client.status()
            return status["authorization"] == "on" and not await client.catalog_objects("users")
    except (RaftError, MetastoreError, AuthorizationError, OSError):
        return False
