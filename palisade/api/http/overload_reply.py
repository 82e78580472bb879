"""A client for whom there is no room: its first request is answered with why, and its connection ends."""

from __future__ import annotations

import asyncio
import json
from typing import cast

from palisade.api.http.etcd_encode import error_fields
from palisade.api.http.request_head import make_head

GRPC_UNAVAILABLE = 14
REQUEST_LINE_BYTES = 64
PATIENCE_S = 1.0


class TurnedAway(asyncio.Protocol):
    """The answer comes after the request: whoever is answered earlier may never read it. Who asks nothing
    goes without an answer, after a moment."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._transport: asyncio.Transport | None = None
        self._impatient: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._impatient = asyncio.get_running_loop().call_later(PATIENCE_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._impatient is not None:
            self._impatient.cancel()

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        etcd = b" /v3/" in data[:REQUEST_LINE_BYTES]
        body = error_fields(self._reason, GRPC_UNAVAILABLE) if etcd else self._problem()
        kind = b"application/json" if etcd else b"application/problem+json"
        self._transport.write(make_head(503, kind, close=True) + b"%d\r\n\r\n%b" % (len(body), body))
        self._transport.close()

    def _problem(self) -> bytes:
        return json.dumps(
            {
                "type": "urn:palisade:problem:too-many-connections",
                "title": "Too Many Connections",
                "status": 503,
                "detail": self._reason,
                "code": "too-many-connections",
                "retry": True,
            }
        ).encode()
