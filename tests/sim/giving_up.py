"""An operator who gives up realtime segments that their ingesters have ceased to announce (issue 17)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.base.errors import PalisadeError
from palisade.catalog.segment import ANNOUNCED, RECORDS, segment_of_record
from palisade.client.realtime_changes import give_up
from tests.sim.clients import Client
from tests.sim.outcomes import EXPECTED
from tests.sim.segment_states import grows

LOOK_S = 1.5
TIMEOUT_S = 2.0
REFUSED = (*EXPECTED, PalisadeError, ConnectionError, TimeoutError)


class Operator:
    def __init__(self, client: Client, going: Callable[[], bool]) -> None:
        self._client, self._world, self._going = client, client.world, going

    async def run(self) -> None:
        while self._going():
            await asyncio.sleep(LOOK_S * self._world.chance.random())
            host = self._world.chance.choice(self._world.members)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._world.ask(self._client.process, self._client.name, host.http, self._look)
            except REFUSED:
                continue

    async def _look(self, node: Any) -> None:
        store = OwnSegmentStore(node.key_values)
        announced = {kv.key for kv in (await store.range(ANNOUNCED, prefix=True)).kvs}
        for kv in (await store.range(RECORDS, prefix=True)).kvs:
            record, segment = json.loads(kv.value), segment_of_record(kv.key)
            if grows(record) and segment.announcement_key(record["ingester"]) not in announced:
                await give_up(store, segment, "operator", "its node is gone", 1)
