"""Clients that have dialled another port of a node than they meant (issue 16)."""

from __future__ import annotations

import json

import pytest

from palisade.base.frames import FrameParser, encode
from palisade.base.wrong_port import ClientProtocol, advice, protocol_of, refusal
from palisade.raftgroup.handshake import HELLO, REFUSE, hello, read_reason
from palisade.wire.stream_frames import PROTOCOL, FrameKind

PORTS = {"http": "127.0.0.1:7401", "stream": "127.0.0.1:7601", "peer": "127.0.0.1:7501"}
STREAM_HELLO = encode(FrameKind.HELLO, {"protocol": PROTOCOL, "client": "palisade-python/1", "timeout_ms": 5000})
PEER_HELLO = encode(HELLO, hello({"member": "n1"}))


@pytest.mark.parametrize(
    ("first", "what"),
    [
        (b"GET /v1/status HTTP/1.1\r\n", ClientProtocol.HTTP),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ClientProtocol.HTTP2),
        (b"\x16\x03\x01\x02\x00\x01", ClientProtocol.TLS),
        (STREAM_HELLO, ClientProtocol.STREAM),
        (PEER_HELLO, ClientProtocol.PEER),
        (b"", None),
        (b"\0\0\0", None),
        (b"GETTING", None),
        (b"\x80\x01", None),
    ],
)
def test_spoken_recognizes_each_protocol_by_its_first_bytes(first: bytes, what: ClientProtocol | None) -> None:
    assert protocol_of(first) is what


def test_advice_names_the_port_to_use() -> None:
    assert advice(ClientProtocol.HTTP, "stream", PORTS).endswith("use the HTTP API port 127.0.0.1:7401")
    assert advice(ClientProtocol.STREAM, "peer", PORTS).endswith("use the stream port 127.0.0.1:7601")
    assert advice(ClientProtocol.PEER, "http", {}).endswith("use the peer port of a member")
    assert advice(ClientProtocol.HTTP2, "stream", PORTS).endswith("use the HTTP API port 127.0.0.1:7401 with HTTP/1.1")
    assert advice(ClientProtocol.HTTP2, "http", PORTS).endswith("HTTP/1.1 only, use it with the JSON paths /v1 and /v3")
    assert "has no TLS" in advice(ClientProtocol.TLS, "http", PORTS)


def test_refusal_is_in_the_protocol_of_the_client() -> None:
    head, _, body = refusal(ClientProtocol.HTTP, "use that").partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 421 ")
    assert json.loads(body)["detail"] == "use that"
    assert FrameParser().feed(refusal(ClientProtocol.STREAM, "use that")) == [
        (FrameKind.REFUSED, {"reason": "use that", "code": "wrong-port"})
    ]
    ((kind, said),) = FrameParser().feed(refusal(ClientProtocol.PEER, "use that"))
    assert (kind, read_reason(said)) == (REFUSE, "use that")
    settings, goaway = b"\0\0\0\x04\0\0\0\0\0", b"\0\0\x10\x07\0\0\0\0\0"
    http_1_1_required = b"\0\0\0\0" + b"\0\0\0\x0d"
    assert refusal(ClientProtocol.HTTP2, "use that") == settings + goaway + http_1_1_required + b"use that"
    assert refusal(ClientProtocol.TLS, "use that").startswith(b"HTTP/1.1 400 ")
