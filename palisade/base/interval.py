"""Times as programs give them: numbers of seconds."""

from __future__ import annotations

INTERVAL_S_MAX = 86_400 * 365


def check_interval(name: str, seconds: float | None) -> None:
    """As `check_seconds`; None means the default."""
    if seconds is not None:
        check_seconds(name, seconds)


def check_seconds(name: str, seconds: float) -> None:
    """Raises TypeError for anything that is no number, ValueError for a number that is out of range."""
    if not isinstance(seconds, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {type(seconds).__name__}")
    if not 0 <= seconds <= INTERVAL_S_MAX:
        raise ValueError(f"{name} {seconds:g} is out of range; give 0 to {INTERVAL_S_MAX} seconds")
