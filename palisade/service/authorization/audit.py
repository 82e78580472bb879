"""The audit log: one line for each refused request. It contains no secrets, and its rate is bounded so that a client
that floods the port cannot fill the disk."""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("palisade.audit")

LINES_MAX = 50
WINDOW_S = 1.0
SHOWN_MAX = 300


class Audit:
    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._began = now()
        self._lines = self._left_out = 0

    def refused(self, caller: str, address: str, action: str, reason: str) -> None:
        if not self._admits_line():
            self._left_out += 1
            return
        log.warning("refused: %s from %s: %s: %s", *(shown(each) for each in (caller, address, action, reason)))

    def _admits_line(self) -> bool:
        now = self._now()
        if now - self._began >= WINDOW_S:
            if self._left_out:
                log.warning("refused: %d more requests, not logged", self._left_out)
            self._began, self._lines, self._left_out = now, 0, 0
        self._lines += 1
        return self._lines <= LINES_MAX


def shown(text: str) -> str:
    """One line, whatever bytes a client sent."""
    return text[:SHOWN_MAX].encode("unicode_escape").decode()
