"""A line in the log for each refusal, so that somebody can see who tries what. No secrets, and not without a bound: who
hammers the port must not fill the disk."""

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

    def refused(self, who: str, where: str, action: str, reason: str) -> None:
        if not self._may():
            self._left_out += 1
            return
        log.warning("refused: %s from %s: %s: %s", *(shown(each) for each in (who, where, action, reason)))

    def _may(self) -> bool:
        now = self._now()
        if now - self._began >= WINDOW_S:
            if self._left_out:
                log.warning("refused: %d more requests, not in this log", self._left_out)
            self._began, self._lines, self._left_out = now, 0, 0
        self._lines += 1
        return self._lines <= LINES_MAX


def shown(text: str) -> str:
    """On one line, whatever a client has put into it."""
    return text[:SHOWN_MAX].encode("unicode_escape").decode()
