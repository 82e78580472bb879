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
_STREAM_REFUSED, _PEER_REFUSE, _JOURNAL_REFUSED = 3, 2, 3
_JOURNAL_HELLO, _KIND_AT, _BODY_AT = 1, 4, 9
_LIST_OF_TWO = b"\x92"
_PEER_MAGIC = b"palisade-peer"
_LOOKED_AT_BYTES = 256


class ClientProtocol(enum.Enum):
    """The protocol of a client. The value is the name of the port that serves it, if one does."""

    HTTP = "http"
    HTTP2 = "http2"
    STREAM = "stream"
    PEER = "peer"
    JOURNAL = "journal"
    TLS = "tls"


_WORDS = {
    ClientProtocol.HTTP: "HTTP",
    ClientProtocol.HTTP2: "HTTP/2, as gRPC does",
    ClientProtocol.STREAM: "the client stream",
    ClientProtocol.PEER: "the protocol between members",
    ClientProtocol.JOURNAL: "the protocol of a journal",
    ClientProtocol.TLS: "TLS",
}
_PORTS = {"http": "HTTP API", "stream": "stream", "peer": "peer", "swim": "SWIM"}
_HERE = {name: f"the {port} port of a Palisade node" for name, port in _PORTS.items()}
_HERE["journal"] = "the port of a journal copy ('palisade journal serve')"
COPY_ADDRESS = "use the address of a journal copy, which is its --advertise or --listen"


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
    if _PEER_MAGIC in head:
        return ClientProtocol.PEER
    if b"protocol" in head:
        return ClientProtocol.STREAM
    is_journal = head[_KIND_AT] == _JOURNAL_HELLO and head.startswith(_LIST_OF_TWO, _BODY_AT)
    return ClientProtocol.JOURNAL if is_journal else None


def advice(what: ClientProtocol, here: str, ports: Mapping[str, str]) -> str:
    """The text for a client that speaks the protocol `what` to the port `here`: http, stream, peer, swim (UDP), or
    journal (of a copy, which knows no port of a node). `ports`: name -> 'host:port' of this node."""
    begin = f"this is {_HERE[here]}, and the client speaks {_WORDS[what]}"
    if what is ClientProtocol.TLS:
        return f"{begin}: this port has no TLS, connect without it"
    if what is ClientProtocol.HTTP2 and here == "http":
        return f"{begin}: this port has HTTP/1.1 only, use it with the JSON paths /v1 and /v3"
    if what is ClientProtocol.JOURNAL:
        return f"{begin}: {COPY_ADDRESS}"
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
    if what is ClientProtocol.JOURNAL:
        return encode(_JOURNAL_REFUSED, [0, CODE, text, False, ""])
    return encode(_PEER_REFUSE, text)


def _http2_frame(kind: int, payload: bytes) -> bytes:
    """Of the connection, without flags (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + (0).to_bytes(4, "big") + payload
