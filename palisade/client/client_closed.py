"""The error of a request to a client that is closed or not open: a retry cannot help."""

from __future__ import annotations

from palisade.raftgroup.errors import Unavailable


class ClientClosed(Unavailable):
    """The client was closed, or is not open yet. Nothing was sent."""

    retry = False
