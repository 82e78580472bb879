"""How many clients a node has room for: its limit of open files, less what it needs for itself. Pure.

Each connection takes a file descriptor. A node that gave them all to clients could not reach its members, nor open its
own files. So it stops in time: who comes then is told why, while those who are there are served.
"""

from __future__ import annotations

import enum
import logging

from palisade.base.log_rate_limit import LogLimit
from palisade.base.metrics import Metrics

log = logging.getLogger(__name__)

FILES_MIN = 64
OWN_FILES_MIN = 40
OWN_FILES_MAX = 512
"""For the node itself: its own files, the other members, strangers on the peer port, and who is just told to go."""
LEAVING_MAX = 8
"""As many may be told at a time why they can't stay; the connections of the rest are closed without a word."""
LOG_PERIOD_S = 60.0


class Admittance(enum.Enum):
    """What becomes of a connection that has just been accepted."""

    STAYS = "stays"
    IS_TOLD = "is told why it can't stay"
    IS_CLOSED = "is closed at once"


class ConnectionLimit:
    """Shared by the ports for clients, whose connections `metrics` counts.

    `files_max`: of the process; None where nothing is known of a limit.
    """

    def __init__(self, metrics: Metrics, files_max: int | None = None) -> None:
        self._metrics = metrics
        self._log_limit = LogLimit(at_once=1, period_s=LOG_PERIOD_S)
        self.connections_max = connections_for(files_max) if files_max is not None else None
        self.reason = (
            f"this node has {self.connections_max} clients, as many as its limit of {files_max} open files allows: "
            "ask another node, or close connections that are not needed, or raise the limit (ulimit -n, LimitNOFILE=)"
        )

    def receive(self, now: float) -> Admittance:
        """Of a connection that is counted already."""
        taken = self._metrics.http_connections + self._metrics.stream_connections
        if self.connections_max is None or taken <= self.connections_max:
            return Admittance.STAYS
        self._metrics.connections_refused += 1
        line = self._log_limit.admit(self.reason, now)
        if line is not None:
            log.warning("a client is refused: %s", line)
        return Admittance.IS_TOLD if taken <= self.connections_max + LEAVING_MAX else Admittance.IS_CLOSED


def connections_for(files_max: int) -> int:
    """How many clients there may be where the process may have `files_max` open files."""
    return files_max - max(OWN_FILES_MIN, min(OWN_FILES_MAX, files_max // 4))
