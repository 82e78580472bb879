"""Log lines while the metadata store does not answer: within 2 s, then at growing intervals, and when it answers again.

Without them a copy that waits for the store is silent, because each of its requests waits for nodes until the deadline.
Interruptions shorter than `PATIENCE_S`, such as a transfer of leadership, are not logged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from palisade.base.recurring_line import RecurringLine

log = logging.getLogger(__name__)
PATIENCE_S = 1.0
LOOK_S = 0.4

Trouble = Callable[[], str | None]
"""Why the store does not answer now; None if it does."""


class StoreTrouble:
    """Pure: times are handed in."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._line = RecurringLine(counts=False)
        self._since: float | None = None

    def line(self, trouble: str | None, now: float) -> str | None:
        """The line to write, or None."""
        if trouble is None:
            self._since = None
            return self._line.over(f"metadata store answers again: role={self._role}", now)
        if self._since is None:
            self._since = now
        if now - self._since < PATIENCE_S:
            return None
        return self._line.holds(f"metadata store does not answer: role={self._role} reason={trouble}", now)


async def report(role: str, trouble: Trouble) -> None:
    """Never returns."""
    lines, now = StoreTrouble(role), asyncio.get_running_loop().time
    while True:
        why = trouble()
        line = lines.line(why, now())
        if line is not None:
            log.log(logging.INFO if why is None else logging.WARNING, "%s", line)
        await asyncio.sleep(LOOK_S)
