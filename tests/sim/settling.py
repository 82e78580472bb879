"""The end of a run for its segments: rows are handed off, copies are where they are assigned, and a count is complete.

Without faults this takes seconds; a client that does not come to its end is a violation of `liveness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.base.errors import PalisadeError
from palisade.segments.assigning import assign_segments
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.clients import TIMEOUT_S, Client
from tests.sim.counting import Counter
from tests.sim.node import Host
from tests.sim.outcomes import EXPECTED
from tests.sim.segment_states import ANNOUNCED, ASSIGNED, RECORDS, SegmentState, grows, needed

LOOK_S = 0.5
REFUSED = (*EXPECTED, PalisadeError, ConnectionError, TimeoutError)


class SegmentSettler:
    def __init__(self, client: Client) -> None:
        self._client, self._world = client, client.world
        self._counter = Counter(client, lambda: False)

    async def run(self) -> None:
        nodes = [self._world.hosts[each] for each in self._world.data_nodes]
        while True:
            for host in nodes:
                await self._ask(host, self._close)
            await self._ask(self._world.chance.choice(self._world.members), self._assign)
            if not unsettled(self._state()) and await self._counter.count():
                self._world.count("copy of a segment: settled")
                return
            await asyncio.sleep(LOOK_S)

    def _state(self) -> SegmentState:
        return next(each for each in self._world.checkers if isinstance(each, SegmentLookups)).states.latest

    async def _close(self, node: Any) -> None:
        ingester = node.segments.local.realtime
        for name in [name for name, held in ingester.held.items() if not held.log.closed]:
            await ingester.close_segment(name)

    async def _assign(self, node: Any) -> None:
        store = OwnSegmentStore(node.key_values)
        await assign_segments(store, self._world.data_nodes, None, "", lambda done, total: None)

    async def _ask(self, host: Host, work: Callable[[Any], Awaitable[None]]) -> None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                await self._world.ask(self._client.process, self._client.name, host.http, work)
        except REFUSED as error:
            self._world.count(f"segments not settled: {type(error).__name__}")


def unsettled(state: SegmentState) -> set[str]:
    """The segments that grow, or whose announcements are not those that are assigned."""
    names = {key.removeprefix(RECORDS).decode() for key in state.rows if key.startswith(RECORDS)}
    open_names = {name for name in names if grows(state.record(name))}
    assigned, announced = (
        {key.removeprefix(prefix).decode() for key in state.rows if key.startswith(prefix)}
        for prefix in (ASSIGNED, ANNOUNCED)
    )
    moving = {each.partition("/")[2] for each in assigned ^ announced}
    return open_names | {name for name in moving if needed(state.record(name))}
