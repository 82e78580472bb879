"""Log lines about datagrams of other programs, clusters and versions (issue 16)."""

from __future__ import annotations

import pytest

from palisade.base.frames import encode
from palisade.topology.swim.dropped_lines import DroppedLines
from palisade.topology.swim.messages import RosterDigest
from palisade.topology.swim.record import SwimIdentity
from palisade.topology.swim.wire import Dropped, DropReason, Wire
from palisade.wire.stream_frames import PROTOCOL, FrameKind

PORTS = {"http": "10.0.0.1:7401", "stream": "10.0.0.1:7601", "role": "member"}
SOURCE = "10.0.0.9:5000"
DIGEST = Wire("c2").encode(RosterDigest(SwimIdentity("n9", "i"), 1, ()))


def line(datagram: bytes, now: float = 0.0, lines: DroppedLines | None = None) -> str | None:
    with pytest.raises(Dropped) as caught:
        Wire("c1").decode(datagram)
    return (lines or DroppedLines("c1")).line(caught.value, datagram, SOURCE, PORTS, now)


@pytest.mark.parametrize(
    ("datagram", "cause"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "the client speaks HTTP: use the HTTP API port 10.0.0.1:7401"),
        (b"\x16\x03\x01\x02\x00\x01", "the client speaks TLS: this port has no TLS"),
        (b"\x16\xfe\xfd" + bytes(40), "use HTTP over TCP at the HTTP API port 10.0.0.1:7401"),
        (b"\xc3" + bytes(1199), "the client speaks DTLS or QUIC"),
        (encode(FrameKind.HELLO, {"protocol": PROTOCOL}), "use the stream port 10.0.0.1:7601"),
        (b"\x01garbage", "another program sends to it (it begins with 0x0167617262616765)"),
        (b"", "it is empty"),
        (bytes(2000), "has 2000 bytes (at most 1400)"),
        (DIGEST, "its sender is not a node of cluster c1: correct --cluster or --seeds"),
        (DIGEST[:4] + b"\x07" + DIGEST[5:], "protocol version 7, this node 1"),
        (DIGEST[:6] + Wire("c1").encode(RosterDigest(SwimIdentity("n", "i"), 1, ()))[6:14] + DIGEST[14:], "checksum"),
    ],
)
def test_line_names_the_source_and_the_likely_cause(datagram: bytes, cause: str) -> None:
    written = line(datagram)
    assert written is not None
    assert f"source={SOURCE} reason=" in written
    assert cause in written


def test_lines_of_one_reason_come_at_growing_intervals_and_begin_again_after_a_pause() -> None:
    lines = DroppedLines("c1")
    at = [now for now in range(3000) if line(b"garbage", now, lines)]
    assert at[:4] == [0, 10, 30, 70]
    assert len(at) < 12
    assert line(DIGEST, 3000, lines), "another reason has a line of its own"
    assert line(b"garbage", 2999 + 601, lines)


def test_reasons_have_each_a_cause() -> None:
    for reason in DropReason:
        written = DroppedLines("c1").line(Dropped(reason), b"x", SOURCE, {}, 0.0)
        assert written is not None
        assert written.rpartition(": ")[2]
