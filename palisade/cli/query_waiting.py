"""Shows the segments and data nodes for which a query waits (issue 17), in one or two rows of 80 columns: one segment
by its short name, and the numbers of the others. The error at the end has the full names of all of them."""

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

SHOWN = 1
"""Segments of one kind in a notice."""


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
    """`assignment`: the last one of `palisade segments assign`. Pure.

    The first kind of wait with an example, the other kinds as numbers; failed attempts only if there is no wait."""

    def listed(names: Sequence[str]) -> str:
        return some([f"{short(name)}{nodes_of(progress.records.get(name), assignment)}" for name in names])

    parts, rest = [], []
    if progress.missing:
        parts.append(f"{segments(len(progress.missing))} without a server: {listed(progress.missing)}")
        rest.append("")
    if progress.loading:
        parts.append(f"{segments(len(progress.loading))} not loaded yet: {listed(progress.loading)}")
        rest.append(f"{len(progress.loading)} not loaded yet")
    if progress.asked:
        asked = [f"{node} for {short(name)}" for name, node in progress.asked.items()]
        parts.append(f"no answer yet from {some(asked)}")
        rest.append(f"{len(asked)} not answered yet")
    if progress.failed and not parts:
        failed = [f"{short(name)} ({why})" for name, why in progress.failed.items()]
        parts.append(f"{segments(len(failed))} not counted: {some(failed)}")
    return "; ".join([*parts[:1], *rest[1:]]) or None


def short(name: str) -> str:
    """The interval, version and partition of a segment, without padding zeros. The user knows the data source."""
    *_, start, end, version, partition = name.split("/")
    times = (each.removesuffix("Z").removesuffix(".000").removesuffix("T00:00:00") for each in (start, end))
    numbers = (each.lstrip("0") or "0" for each in (version, partition))
    return "/".join([*times, *numbers])


def nodes_of(record: Mapping[str, Any] | None, assignment: Mapping[str, Any] | None) -> str:
    """The nodes that have the rows: the assigned ones, or the ingester until the segment is assigned."""
    if record is None:
        return ""
    name, ingester = record["segment"], record.get("ingester")
    is_assigned = record["digest"] and assignment is not None and name.startswith(assignment["prefix"])
    if assignment is None or not is_assigned:
        return f" (on {ingester})" if ingester else ""
    return f" (assigned to {', '.join(sorted(holders(name, assignment['nodes'], record['replicas'])))})"


def segments(count: int) -> str:
    return f"{count} segment{'s' if count > 1 else ''}"


def some(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return f"{', '.join(texts[:SHOWN])}{more}"
