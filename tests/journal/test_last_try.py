"""Copies that refuse an append: its outcome is known, however little of the timeout is left (issue 16)."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest

from palisade.journal.channel import AtOnce
from palisade.journal.client import JournalClient
from palisade.journal.errors import NotActive
from palisade.journal.messages import AppendRefusal, JournalMessageKind
from tests.support.simulation import Simulation

ANSWER_S = 0.02


class InactiveCopy:
    """A network with one copy, which is its own channel: it refuses each append after `ANSWER_S`."""

    def __init__(self) -> None:
        self._requests = asyncio.Queue[list[Any]]()

    async def dial(self, address: str) -> InactiveCopy:
        return self

    def send(self, kind: int, body: Any) -> None:
        if kind == JournalMessageKind.APPEND:
            self._requests.put_nowait(body)

    async def drain(self) -> None: ...

    async def receive(self, at_once: AtOnce | None = None) -> tuple[int, Any] | None:
        if at_once is None:
            return JournalMessageKind.WELCOME, []
        while True:
            number, *_ = await self._requests.get()
            await asyncio.sleep(ANSWER_S)
            at_once(JournalMessageKind.REFUSED, AppendRefusal(number, NotActive.code, "it is not active", True).body())

    def close(self) -> None: ...


@pytest.mark.parametrize("timeout_s", [1.0 + step / 200 for step in range(16)])
def test_append_that_the_copies_refuse_is_never_unknown(timeout_s: float) -> None:
    """With two of three nodes frozen, one of seven appends ended with "the entries may have been appended"."""

    async def append() -> None:
        network, now = InactiveCopy(), asyncio.get_running_loop().time
        async with JournalClient("role", ["c1"], timeout_s=timeout_s, network=network, clock=now) as client:
            with pytest.raises(NotActive, match="nothing was appended"):
                await client.append(b"x")

    with closing(Simulation(1)) as simulation:
        simulation.run(simulation.process("client"), append())
