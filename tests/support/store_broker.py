"""A broker for a node without a vault: each lookup reads the store."""

from __future__ import annotations

from typing import Any

from palisade.catalog.segment import ROOT
from palisade.metastore.requests import Range
from palisade.recovery.listeners import Listeners
from palisade.segments.broker import END, SegmentBroker, ViewFeed
from palisade.service.key_values import KeyValues
from palisade.vault.change import Item


class StoreBroker(SegmentBroker):
    def __init__(self, service: KeyValues) -> None:
        nothing: Any = None
        super().__init__(Listeners(), lambda: nothing, lambda: nothing, lambda: 0.0)
        self._service = service

    async def _current(self) -> ViewFeed:
        found = self._service.store.range(Range(ROOT, END))
        feed = ViewFeed()
        for _ in feed.rows((Item(*kv) for kv in found.kvs), found.revision):
            pass
        return feed
