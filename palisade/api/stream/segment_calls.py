"""The calls of the stream about segments: name -> function. Arguments and results are msgpack values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from palisade.api.segment_service import SegmentLookups

Call = Callable[..., Awaitable[Any]]


class SegmentCalls:
    def __init__(self, lookups: SegmentLookups) -> None:
        self._lookups = lookups

    def by_name(self) -> dict[str, Call]:
        return {"segments_lookup": self._lookup, "segments_list": self._list, "segment": self._one}

    async def _lookup(self, data_source: Any, start: Any, end: Any) -> dict[str, Any]:
        """Includes the missing segments: the client decides whether they are an error, so the list is complete."""
        return await self._lookups.lookup(data_source, start, end, "allow")

    async def _list(self, data_source: Any) -> dict[str, Any]:
        return await self._lookups.listed(data_source)

    async def _one(self, name: str) -> dict[str, Any]:
        return await self._lookups.one(name)
