"""Notifies when this member begins or ceases to lead, before it answers anything in that role. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Leading(Protocol):
    @property
    def leads(self) -> bool:
        """Leader, and everything of earlier terms is applied."""
        ...

    @property
    def leading_term(self) -> int: ...


class Leadership:
    """`turned` is called after each turn of the group; `on_led` with whether it leads, and in which term."""

    def __init__(self, replica: Leading) -> None:
        self._replica = replica
        self._known: tuple[bool, int] = (False, 0)
        self.on_led: Callable[[bool, int], object] = lambda _leads, _term: None

    def turned(self) -> None:
        before, now = self._known, (self._replica.leads, self._replica.leading_term)
        self._known = now
        if now != before and (now[0] or before[0]):
            self.on_led(*now)
