"""A follower's copy of the logical topology, fetched from a member.

The copy is fetched on demand, at most once per `FRESH_S` for all readers together; without readers there are no
requests. While no member answers, the last copy stays and its age grows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from palisade.raftgroup.errors import RaftError
from palisade.topology.records import NodeRecord
from palisade.topology.view import logical_row
from palisade.wire.topology_errors import JoinLater, JoinRejected

FRESH_S = 1.0
ASK_S = 2.0

Ask = Callable[[], Awaitable[tuple[Sequence[NodeRecord], int]]]


class LogicalCopy:
    """`ask`: fetches the records and their version. `now`: a clock in seconds."""

    def __init__(self, ask: Ask, now: Callable[[], float]) -> None:
        self._ask, self._now = ask, now
        self._rows: list[dict[str, Any]] = []
        self._version = 0
        self._as_of: float | None = None
        self._asked_at: float | None = None
        self._asking = asyncio.Lock()

    async def refresh(self) -> None:
        """Returns within `ASK_S` after it has started to ask, with or without an answer."""
        async with self._asking:
            if self._asked_at is not None and self._now() - self._asked_at < FRESH_S:
                return
            try:
                async with asyncio.timeout(ASK_S):
                    records, version = await self._ask()
            except (RaftError, JoinLater, JoinRejected, TimeoutError):
                self._asked_at = self._now()
                return
            self._rows, self._version = [logical_row(record) for record in records], version
            self._as_of = self._asked_at = self._now()

    def rows(self) -> tuple[list[dict[str, Any]], int]:
        return self._rows, self._version

    def age_s(self) -> float | None:
        """None until the first answer."""
        return None if self._as_of is None else self._now() - self._as_of
