"""An operator who gives up realtime segments that their ingesters have ceased to announce (issue 17)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from palisade.api.segment_service import OwnSegmentStore
from palisade.catalog.segment import ANNOUNCED, RECORDS, segment_of_record
from palisade.client.realtime_changes import give_up
from tests.sim.segment_client import REFUSED, SegmentClient
from tests.sim.segment_states import grows

LOOK_S = 1.5
TIMEOUT_S = 2.0


class Operator(SegmentClient):
    async def run(self) -> None:
        while self.going():
            await asyncio.sleep(LOOK_S * self.chance.random())
            host = self.chance.choice(self.world.members)
            try:
                await self.ask(host, self.look, TIMEOUT_S)
            except REFUSED:
                continue

    async def look(self, node: Any) -> None:
        store = OwnSegmentStore(node.key_values)
        announced = {kv.key for kv in (await store.range(ANNOUNCED, prefix=True)).kvs}
        for kv in (await store.range(RECORDS, prefix=True)).kvs:
            record, segment = json.loads(kv.value), segment_of_record(kv.key)
            if grows(record) and segment.announcement_key(record["ingester"]) not in announced:
                await give_up(store, segment, "operator", "its node is gone", 1)
