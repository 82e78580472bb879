"""The interface of a watch, whether the store is reached over the network or runs in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from palisade.metastore.results import RevisionEvents


class WatchHandle(Protocol):
    """Iterate it with `async for`. Close it, or leave its `async with`, after use.

    Each item holds all events of one revision that match the watch. An item without events is a progress
    notification: everything up to its revision was delivered. Raises Compacted when compaction overtakes it.
    """

    @property
    def next_revision(self) -> int:
        """The `start_revision` of another watch that continues after the delivered events."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why no events can arrive at the moment; None if silence means no change."""
        ...

    def __aiter__(self) -> AsyncIterator[RevisionEvents]: ...
    async def __anext__(self) -> RevisionEvents: ...
    async def __aenter__(self) -> WatchHandle: ...
    async def __aexit__(self, *_: object) -> None: ...
    async def aclose(self) -> None: ...
