"""Refuses a client beyond the connection limit: its first request gets a 503 with the reason, then the connection is
closed."""

from __future__ import annotations

import asyncio
import json
from typing import cast

from palisade.api.http.etcd_errors import error_fields
from palisade.api.http.request_head import make_head

GRPC_UNAVAILABLE = 14
REQUEST_LINE_BYTES = 64
REQUEST_WAIT_S = 1.0


class OverloadReply(asyncio.Protocol):
    """The response is sent after the request has arrived: a client may never read an earlier one. A client that sends
    nothing is disconnected after a moment."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._timer = asyncio.get_running_loop().call_later(REQUEST_WAIT_S, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()

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
