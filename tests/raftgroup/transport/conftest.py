"""Every transport test runs on both event loops, and must leave no task or socket."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvloop

from palisade.raftgroup.tcp_transport import TcpPeers
from tests.support.loopback import (
    LOOPBACK,
    QUICK,
    Member,
    Start,
)
from tests.support.recorder import Recorder


@pytest.fixture(
    params=[asyncio.DefaultEventLoopPolicy, uvloop.EventLoopPolicy], ids=["asyncio", "uvloop"], scope="module"
)
def event_loop_policy(request: pytest.FixtureRequest) -> asyncio.AbstractEventLoopPolicy:
    policy: asyncio.AbstractEventLoopPolicy = request.param()
    return policy


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts members; checks afterwards that none has left a task or a socket."""
    members: list[Member] = []

    async def start_one(member: str, *, cluster: str = "c1", listen: str = LOOPBACK, **options: Any) -> Member:
        options.setdefault("limits", QUICK)
        made = Member(Recorder(member, cluster), TcpPeers(listen, random.Random(1), **options))
        await made.peers.start(made.recorder)
        members.append(made)
        return made

    yield start_one
    for member in members:
        await member.peers.close()
    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in left if name.startswith("dial ")}
    assert not any(member.peers._open for member in members)
