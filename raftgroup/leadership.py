"""Notifies when this member begins or ceases to lead, before it answers anything in that role."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class Leading(Protocol):
    @property
    def leads(self) -> bool:
        """Leader, and everything of earlier terms is applied."""
        ...

    @property
    def leading_term(self) -> int: ...


class LeadershipEvents:
    """Call `turned` after each turn of the group. It calls `on_led` with (whether this member leads, term)."""

    def __init__(self, replica: Leading, on_led: Callable[[bool, int], object]) -> None:
        self._replica = replica
        self._on_led = on_led
        self._known: tuple[bool, int] = (False, 0)
        self._leading = asyncio.Event()

    async def until_leads(self) -> None:
        """Waits until this member leads; returns at once if it does. Duties of the leader wait here, so they cost a
        follower nothing."""
        await self._leading.wait()

    def turned(self) -> None:
        before, now = self._known, (self._replica.leads, self._replica.leading_term)
        self._known = now
        if now != before and (now[0] or before[0]):
            self._on_led(*now)
            if now[0]:
                self._leading.set()
            else:
                self._leading.clear()
