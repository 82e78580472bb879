"""The limit of open files of this process."""

from __future__ import annotations

import resource

from palisade.base.connection_limit import FILES_MIN
from palisade.base.errors import ConfigError

UNLIMITED = 1 << 20
"""What Linux gives to a process without a limit of its own (fs.nr_open)."""


def raise_file_limit() -> int:
    """Raise the limit to the maximum that this user may set, and return it. Raises ConfigError if it is too low for a
    node.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return UNLIMITED
    if hard < FILES_MIN:
        raise ConfigError(
            f"this process may have {hard} open files, and a node needs at least {FILES_MIN}, and one for each client: "
            "raise the limit (ulimit -n 20000, or LimitNOFILE=20000 of a systemd unit)"
        )
    return hard
