"""How long a node may take for the requests of one connection: less than their client waits."""

from __future__ import annotations

import asyncio
from typing import Any

from palisade.api.stream.frame_checks import deadline_of


class RequestTimeout:
    """`seconds`: of a request that arrives now.

    Requests that waited before their client had this connection (`waited_ms` in HELLO) have what is left of their time.
    With the time of a new request, the node would still keep them when the client has given them up, and the client
    would not know that they were refused.
    """

    def __init__(self, own_s: float) -> None:
        """`own_s`: the deadline of the node."""
        self.seconds = self._own_s = own_s
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, hello: dict[str, Any]) -> None:
        client_ms, waited_ms = hello.get("timeout_ms"), hello.get("waited_ms")
        self._set(client_ms)
        if type(client_ms) is int and type(waited_ms) is int and 0 < waited_ms < client_ms:
            left_ms = client_ms - waited_ms
            self._set(left_ms)
            self._timer = asyncio.get_running_loop().call_later(left_ms / 1000, self._set, client_ms)

    def close(self) -> None:
        """The connection has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, client_ms: Any) -> None:
        self.seconds = deadline_of(client_ms, self._own_s)
