"""The reaction of the supervisor to a node that ended without a request. Pure."""

from __future__ import annotations

import enum
import signal

from palisade.cli.node_exit_codes import EXIT_LOST, EXIT_MUST_JOIN, EXIT_REFUSED, EXIT_REMOVED

FIRST_S = 1.0
LONGEST_S = 30.0
HEALTHY_AFTER_S = 60.0
"""After this uptime, the failures of a node are counted from 1 again."""


class Ending(enum.Enum):
    REFUSED = "refused"
    REMOVED = "removed"
    MUST_JOIN = "must join"
    LOST = "lost"
    FAILED = "failed"


def judge(exit_code: int) -> Ending:
    return _ENDINGS.get(exit_code, Ending.FAILED)


_ENDINGS = {
    EXIT_REFUSED: Ending.REFUSED,
    EXIT_REMOVED: Ending.REMOVED,
    EXIT_MUST_JOIN: Ending.MUST_JOIN,
    EXIT_LOST: Ending.LOST,
}


def failures_in_a_row(before: int, ran_s: float) -> int:
    """The number of consecutive failures, including this one."""
    return 1 if ran_s >= HEALTHY_AFTER_S else before + 1


def backoff_s(failures: int) -> float:
    """The pause before the next start, after this number of consecutive failures (1, 2, ...)."""
    return float(min(LONGEST_S, FIRST_S * 2 ** min(failures - 1, 10)))


def describe_exit(exit_code: int) -> str:
    """'killed by SIGKILL' or 'exit code 1'; a negative code is a signal, as in `subprocess`."""
    if exit_code >= 0:
        return f"exit code {exit_code}"
    try:
        return f"killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed by signal {-exit_code}"
