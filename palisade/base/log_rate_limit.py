"""Limits log lines about errors of remote peers, so that a flood of bad requests does not fill the disk."""

from __future__ import annotations

from palisade.base.counted import counted


class LogLimit:
    """A burst of lines, then one per `period_s`; the next line that passes states how many were suppressed.

    Times are seconds of any clock that does not go back.
    """

    def __init__(self, at_once: int = 10, period_s: float = 1.0) -> None:
        self._at_once = at_once
        self._period_s = period_s
        self._left = float(at_once)
        self._filled_at: float | None = None
        self._suppressed = 0

    def admit(self, line: str, now: float) -> str | None:
        """The line to write, or None."""
        if self._filled_at is not None:
            self._left = min(self._at_once, self._left + (now - self._filled_at) / self._period_s)
        self._filled_at = now
        if self._left < 1:
            self._suppressed += 1
            return None
        self._left -= 1
        suppressed, self._suppressed = self._suppressed, 0
        return f"{line} ({counted(suppressed, 'similar line')} suppressed)" if suppressed else line
