"""Log lines about datagrams that a node drops: the likely cause, and what to correct. Pure; times are handed in.

One line per reason when the first such datagram arrives, then at growing intervals, however many arrive: any host can
send datagrams.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from palisade.base.recurring_line import LONGEST_S, RecurringLine
from palisade.base.wrong_port import advice, protocol_of
from palisade.topology.swim.wire import DATAGRAM_BYTES_MAX, VERSION, Dropped, DropReason

_DTLS_HANDSHAKE = b"\x16\xfe"
_QUIC_LONG_HEADER = 0xC0
_QUIC_BYTES_MIN = 1200
_SHOWN_BYTES = 16


class DroppedLines:
    """`cluster`: the name of this node's cluster."""

    def __init__(self, cluster: str) -> None:
        self._cluster = cluster
        self._lines: defaultdict[DropReason, RecurringLine] = defaultdict(RecurringLine)

    def line(self, dropped: Dropped, datagram: bytes, source: str, ports: Mapping[str, str], now: float) -> str | None:
        """The line to write about this datagram, or None. `ports`: name -> 'host:port' of this node."""
        recurring = self._lines[dropped.reason]
        recurring.over("", now, quiet_s=LONGEST_S)
        cause = self._cause(dropped, datagram, ports)
        return recurring.holds(f"dropped a datagram: source={source} reason={dropped.reason.value}: {cause}", now)

    def _cause(self, dropped: Dropped, datagram: bytes, ports: Mapping[str, str]) -> str:
        if dropped.reason is DropReason.OTHER_CLUSTER:
            return f"its sender is not a node of cluster {self._cluster}: correct --cluster or --seeds of one of them"
        if dropped.reason is DropReason.OTHER_VERSION:
            return f"its sender uses protocol version {dropped.version}, this node {VERSION}: run the same release"
        if dropped.reason is DropReason.DAMAGED:
            return "its checksum does not match: the network changes datagrams, or another program sends them"
        if dropped.reason is DropReason.MALFORMED:
            return "its fields are invalid: run the same release on all nodes"
        return _foreign(datagram, ports)


def _foreign(datagram: bytes, ports: Mapping[str, str]) -> str:
    what = protocol_of(datagram)
    if what is not None:
        return advice(what, "swim", ports)
    here = "this is the SWIM port of a Palisade node, and"
    if datagram.startswith(_DTLS_HANDSHAKE) or _may_be_quic(datagram):
        use = ports.get("http")
        return f"{here} the client speaks DTLS or QUIC: use HTTP over TCP at the HTTP API port {use or 'of a member'}"
    begins = f"it begins with 0x{datagram[:_SHOWN_BYTES].hex()}" if datagram else "it is empty"
    large = f", has {len(datagram)} bytes (at most {DATAGRAM_BYTES_MAX})" if len(datagram) > DATAGRAM_BYTES_MAX else ""
    return f"{here} another program sends to it ({begins}{large}): stop it, or give the node another --swim port"


def _may_be_quic(datagram: bytes) -> bool:
    return len(datagram) >= _QUIC_BYTES_MIN and datagram[0] & _QUIC_LONG_HEADER == _QUIC_LONG_HEADER
