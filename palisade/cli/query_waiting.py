"""Shows the segments and data nodes for which a query waits (issue 17)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

from palisade.base.errors import PalisadeError
from palisade.segments.assignment import holders
from palisade.segments.names import LAST_ASSIGNMENT

if TYPE_CHECKING:
    from palisade.client.segment_query import CountProgress

SHOWN = 3
"""Segments in one notice."""


class QueryWaiting:
    """The text for one count. Once a segment has no server, it reads the last assignment to name the assigned nodes."""

    def __init__(self, progress: CountProgress) -> None:
        self._progress = progress
        self._assignment: Mapping[str, Any] | None = None
        self._needed = asyncio.Event()

    @asynccontextmanager
    async def reading(self, client: Any) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self._read(client))
        try:
            yield
        finally:
            task.cancel()

    def look(self) -> None:
        if self._progress.missing or self._progress.loading:
            self._needed.set()

    async def _read(self, client: Any) -> None:
        """Ignores errors: without the permission to read the assignment, no nodes are named."""
        await self._needed.wait()
        with suppress(PalisadeError, OSError):
            found = (await client.range(LAST_ASSIGNMENT)).kvs
            self._assignment = json.loads(found[0].value) if found else None

    def text(self) -> str | None:
        return waits_for(self._progress, self._assignment)


def waits_for(progress: CountProgress, assignment: Mapping[str, Any] | None) -> str | None:
    """`assignment`: the last one of `palisade segments assign`. Pure."""

    def listed(names: Sequence[str]) -> str:
        return some([f"{name}{nodes_of(progress.records.get(name), assignment)}" for name in names])

    parts = []
    if progress.missing:
        parts.append(f"{segments(len(progress.missing))} without a server: {listed(progress.missing)}")
    if progress.loading:
        parts.append(f"{segments(len(progress.loading))} not loaded yet: {listed(progress.loading)}")
    if progress.asked:
        parts.append(f"no answer yet from {some([f'{node} for {name}' for name, node in progress.asked.items()])}")
    if progress.failed:
        failed = [f"{name} ({why})" for name, why in progress.failed.items()]
        parts.append(f"{segments(len(failed))} not counted: {some(failed)}")
    return "; ".join(parts) or None


def nodes_of(record: Mapping[str, Any] | None, assignment: Mapping[str, Any] | None) -> str:
    """The nodes that have the rows: the assigned ones, or the ingester until the segment is assigned."""
    if record is None:
        return ""
    name, ingester = record["segment"], record.get("ingester")
    is_assigned = record["digest"] and assignment is not None and name.startswith(assignment["prefix"])
    if assignment is None or not is_assigned:
        return f" (its rows are on {ingester})" if ingester else ""
    return f" (assigned to {', '.join(sorted(holders(name, assignment['nodes'], record['replicas'])))})"


def segments(count: int) -> str:
    return f"{count} segment{'s' if count > 1 else ''}"


def some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{', '.join(texts[:SHOWN])}{more}"
