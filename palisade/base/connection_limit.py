"""How many client connections a node accepts: its limit of open files less the files that it needs itself. Pure.

Each connection takes a file descriptor. A node without free descriptors could not reach its members or open its own
files. It therefore refuses new clients in time, with a reason, and continues to serve the connected ones.
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
"""Reserved for the node: its files, members, unknown peers on the peer port, and clients that are being refused."""
LEAVING_MAX = 8
"""Maximum clients that are sent a reason at a time; further connections are closed at once."""
LOG_PERIOD_S = 60.0


class Admission(enum.Enum):
    """The decision about a connection that has just been accepted."""

    ACCEPT = "accept"
    REFUSE_WITH_REASON = "refuse with reason"
    CLOSE = "close"


class ConnectionLimit:
    """Shared by the ports for clients, whose connections `metrics` counts.

    `files_max`: of the process; None if no limit is known.
    """

    def __init__(self, metrics: Metrics, files_max: int | None = None) -> None:
        self._metrics = metrics
        self._log_limit = LogLimit(at_once=1, period_s=LOG_PERIOD_S)
        self.connections_max = connections_for(files_max) if files_max is not None else None
        self.reason = (
            f"this node has {self.connections_max} clients, as many as its limit of {files_max} open files allows: use "
            "another node, close unneeded connections, or raise the limit (ulimit -n, LimitNOFILE=)"
        )

    def admit(self, now: float) -> Admission:
        """Decide about a connection that is already counted."""
        taken = self._metrics.http_connections + self._metrics.stream_connections
        if self.connections_max is None or taken <= self.connections_max:
            return Admission.ACCEPT
        self._metrics.connections_refused += 1
        line = self._log_limit.admit(self.reason, now)
        if line is not None:
            log.warning("client refused: %s", line)
        return Admission.REFUSE_WITH_REASON if taken <= self.connections_max + LEAVING_MAX else Admission.CLOSE


def connections_for(files_max: int) -> int:
    """How many clients a process may have whose limit is `files_max` open files."""
    return files_max - max(OWN_FILES_MIN, min(OWN_FILES_MAX, files_max // 4))
