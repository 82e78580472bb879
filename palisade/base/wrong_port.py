"""Recognizes, by the first bytes of a connection, a client that has dialled another port of a node than it meant.

Pure. Each port answers in the protocol of the client and names the port to use; the node logs the attempt.
"""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from typing import Any

from palisade.base.frames import encode

CODE = "wrong-port"
_METHOD = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE|OPTIONS|PATCH|CONNECT) ")
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n"
_HTTP2_SETTINGS, _HTTP2_GOAWAY = 4, 7
_HTTP_1_1_REQUIRED = 0x0D
_TLS_HANDSHAKE = b"\x16\x03"
_STREAM_REFUSED, _PEER_REFUSE = 3, 2
_PEER_MAGIC = b"palisade-peer"
_LOOKED_AT_BYTES = 256


class ClientProtocol(enum.Enum):
    """The protocol of a client. The value is the name of the port that serves it, if one does."""

    HTTP = "http"
    HTTP2 = "http2"
    STREAM = "stream"
    PEER = "peer"
    TLS = "tls"


_WORDS = {
    ClientProtocol.HTTP: "HTTP",
    ClientProtocol.HTTP2: "HTTP/2, as gRPC does",
    ClientProtocol.STREAM: "the client stream",
    ClientProtocol.PEER: "the protocol between members",
    ClientProtocol.TLS: "TLS",
}
_PORTS = {"http": "HTTP API", "stream": "stream", "peer": "peer", "swim": "SWIM"}


def protocol_of(first: bytes) -> ClientProtocol | None:
    """`first`: the first bytes of the connection. None: no known protocol."""
    if first.startswith(_TLS_HANDSHAKE):
        return ClientProtocol.TLS
    if first.startswith(HTTP2_PREFACE):
        return ClientProtocol.HTTP2
    if _METHOD.match(first):
        return ClientProtocol.HTTP
    if len(first) < 9 or not first.startswith(b"\0\0"):
        return None
    head = first[:_LOOKED_AT_BYTES]
    return ClientProtocol.PEER if _PEER_MAGIC in head else ClientProtocol.STREAM if b"protocol" in head else None


def advice(what: ClientProtocol, here: str, ports: Mapping[str, str]) -> str:
    """The text for a client that speaks the protocol `what` to the port `here`: http, stream, peer or swim (UDP).
    `ports`: name -> 'host:port' of this node."""
    begin = f"this is the {_PORTS[here]} port of a Palisade node, and the client speaks {_WORDS[what]}"
    if what is ClientProtocol.TLS:
        return f"{begin}: this port has no TLS, connect without it"
    if what is ClientProtocol.HTTP2 and here == "http":
        return f"{begin}: this port has HTTP/1.1 only, use it with the JSON paths /v1 and /v3"
    port, how = ("http", " with HTTP/1.1") if what is ClientProtocol.HTTP2 else (what.value, "")
    return f"{begin}: use the {_PORTS[port]} port {ports.get(port) or 'of a member'}{how}"


def refusal(what: ClientProtocol, text: str) -> bytes:
    """The answer in the client's own protocol; to TLS in plain HTTP, which its libraries report as such."""
    if what is ClientProtocol.HTTP2:
        last_stream_and_code = (0).to_bytes(4, "big") + _HTTP_1_1_REQUIRED.to_bytes(4, "big")
        return _http2_frame(_HTTP2_SETTINGS, b"") + _http2_frame(_HTTP2_GOAWAY, last_stream_and_code + text.encode())
    if what in (ClientProtocol.HTTP, ClientProtocol.TLS):
        status = "421 Misdirected Request" if what is ClientProtocol.HTTP else "400 Bad Request"
        problem: dict[str, Any] = {"type": "about:blank", "title": "Wrong port", "status": int(status[:3])}
        problem |= {"code": CODE, "detail": text}
        body = json.dumps({**problem, "retry": False}).encode() + b"\n"
        head = (
            f"HTTP/1.1 {status}\r\nContent-Type: application/problem+json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body
    if what is ClientProtocol.STREAM:
        return encode(_STREAM_REFUSED, {"reason": text, "code": CODE})
    return encode(_PEER_REFUSE, text)


def _http2_frame(kind: int, payload: bytes) -> bytes:
    """Of the connection, without flags (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + (0).to_bytes(4, "big") + payload
