"""What to write about a condition that lasts: once when it begins, then at growing intervals, then that it is over.

Pure: times are seconds of any clock that does not go back. Texts of one condition may differ (which address was tried
last); that alone is no reason for another line.
"""

from __future__ import annotations

FIRST_S, LONGEST_S = 10.0, 600.0


class RecurringLine:
    """Of one condition. `first_s`: until the second line; each later interval is twice as long, up to `longest_s`.
    `steady_s`: until then, all intervals are as long as the first. `counts`: lines state how many were suppressed."""

    __slots__ = (
        "_began", "_counts", "_due", "_first_s", "_interval_s", "_last", "_left_out", "_longest_s", "_steady_s",
    )  # fmt: skip

    def __init__(
        self, first_s: float = FIRST_S, longest_s: float = LONGEST_S, steady_s: float = 0.0, *, counts: bool = True
    ) -> None:
        self._first_s, self._longest_s, self._steady_s = first_s, longest_s, steady_s
        self._counts = counts
        self._began: float | None = None
        self._due = self._interval_s = self._last = 0.0
        self._left_out = 0

    @property
    def lasts(self) -> bool:
        return self._began is not None

    def holds(self, text: str, now: float) -> str | None:
        """The condition holds: the line to write, or None."""
        self._last = now
        if self._began is None:
            self._began, self._interval_s, self._left_out = now, self._first_s, 0
            self._due = now + self._interval_s
            return text
        if now < self._due:
            self._left_out += 1
            return None
        if now - self._began >= self._steady_s:
            self._interval_s = min(2 * self._interval_s, self._longest_s)
        self._due = now + self._interval_s
        left_out, self._left_out = self._left_out, 0
        lines = "line" if left_out == 1 else "lines"
        more = f", {left_out} similar {lines} suppressed" if left_out and self._counts else ""
        return f"{text} (for {now - self._began:.0f} s{more})"

    def over(self, text: str, now: float, quiet_s: float = 0.0) -> str | None:
        """The condition does not hold, and did not for `quiet_s`: the line to write, if one was written when it
        began."""
        began = self._began
        if began is None or now - self._last < quiet_s:
            return None
        self._began = None
        return f"{text} (after {now - began:.1f} s)"
