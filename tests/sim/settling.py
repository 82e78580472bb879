"""The end of a run for its segments: rows are handed off, copies are where they are assigned, and a count is complete.

Without faults this takes seconds; a client that does not come to its end is a violation of `liveness`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.segments.assigning import assign_segments
from tests.sim.checkers.segment_lookups import SegmentLookups
from tests.sim.clients import Client
from tests.sim.counting import Counter
from tests.sim.expiring import LostSegments
from tests.sim.giving_up import Operator
from tests.sim.node import Host
from tests.sim.segment_client import REFUSED, SegmentClient
from tests.sim.segment_states import ANNOUNCED, ASSIGNED, RECORDS, SegmentState, grows, needed

LOOK_S = 0.5


class SegmentSettler(SegmentClient):
    def __init__(self, client: Client) -> None:
        super().__init__(client, lambda: True)
        self._counter = Counter(client, lambda: True)
        self._lost = LostSegments(client, lambda: True)
        self._operator = Operator(client, lambda: True)

    async def run(self) -> None:
        nodes = [self.world.hosts[each] for each in self.world.data_nodes]
        while True:
            for host in nodes:
                await self._try(host, self._close)
            await self._try(self.chance.choice(self.world.members), self._assign)
            if self.world.has_expiry:
                await self._try(self.chance.choice(self.world.members), self._lost.mark)
                await self._try(self.chance.choice(self.world.members), self._operator.look)
            if not unsettled(self._state()) and await self._counter.count():
                self.world.count("copy of a segment: settled")
                return
            await asyncio.sleep(LOOK_S)

    def _state(self) -> SegmentState:
        return self.world.checker(SegmentLookups).states.latest

    async def _close(self, node: Any) -> None:
        ingester = node.segments.local.realtime
        for name in [name for name, held in ingester.held.items() if not held.log.closed]:
            await ingester.close_segment(name)

    async def _assign(self, node: Any) -> None:
        store = OwnSegmentStore(node.key_values)
        await assign_segments(store, self.world.data_nodes, None, "", lambda done, total: None)

    async def _try(self, host: Host, work: Callable[[Any], Awaitable[None]]) -> None:
        try:
            await self.ask(host, work)
        except REFUSED as error:
            self.world.count(f"segments not settled: {type(error).__name__}")


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
