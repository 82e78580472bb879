"""The receiving end: a connection dialled by another member. This node only receives on it, and answers pings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

from palisade.base.wrong_port import ClientProtocol, advice, protocol_of, refusal
from palisade.raftgroup.handshake import (
    GROUP_KINDS,
    HELLO,
    PING,
    PONG,
    REFUSE,
    HandshakeRefused,
    hello,
    read_hello,
    read_reason,
)
from palisade.raftgroup.peer_connection import Frames, Hub, PeerConnection
from palisade.raftgroup.peer_state import PeerEvent, PeerState


class AcceptingHub(Hub, Protocol):
    ports: Mapping[str, str]
    """Name -> 'host:port' of this node, for clients of another port."""

    def is_full(self) -> bool:
        """Whether too many connections have not greeted yet."""
        ...

    def introduced(self, connection: Accepted) -> None:
        """The connection has greeted: from now on messages of its member are accepted on this one only."""
        ...


class Accepted(PeerConnection):
    """`member` is empty until the other side has greeted and was accepted."""

    def __init__(self, hub: AcceptingHub) -> None:
        super().__init__(hub, hub.limits.answers_bytes_max)
        self._accepting_hub = hub
        self._receiver = hub.receiver
        self.member = ""

    def began(self) -> None:
        if self._accepting_hub.is_full():
            self.abort(f"more than {self._hub.limits.strangers_max} connections have not greeted yet")

    def data_received(self, data: bytes) -> None:
        what = protocol_of(data) if self.state is PeerState.GREETING else None
        if what is None or what is ClientProtocol.PEER:
            super().data_received(data)
            return
        text = advice(what, "peer", self._accepting_hub.ports)
        if self.transport is not None:
            self.transport.write(refusal(what, text))
        self.close(f"refused: {text}")

    def take(self, kind: int, body: Any) -> None:
        if kind >= GROUP_KINDS and self.state is PeerState.OPEN:
            self._receiver.on_message(self.member, kind, body)
        else:
            super().take(kind, body)

    def _on_ping(self, body: Any) -> None:
        self.send(self._hub.encoder.encode(PONG, None))

    def _on_refuse(self, body: Any) -> None:
        reason = read_reason(body)
        self.close(f"it refuses this node: {reason}")
        self._receiver.on_refused(self.member, reason)

    def _on_hello(self, body: Any) -> None:
        encode = self._hub.encoder.encode
        try:
            member, greeting = read_hello(body)
            reason = self._receiver.greet(greeting)
            if reason is not None:
                raise HandshakeRefused(reason)
        except HandshakeRefused as refusal:
            self.send(encode(REFUSE, str(refusal)))
            self.close(f"refused: {refusal}")
            return
        self.member = member
        self.moved(PeerEvent.GREETED)
        self._parser.frame_bytes_max = self._hub.limits.frame_bytes_max
        self._accepting_hub.introduced(self)
        self.send(encode(HELLO, hello(self._receiver.greeting())))

    def ended(self) -> None:
        peer = f"{self.member} at {self.address}" if self.member else self.address
        self._hub.warn(f"connection from {peer} ended: {self.end_reason}", self.member)

    frames: ClassVar[Frames] = {
        PeerState.GREETING: {HELLO: _on_hello},
        PeerState.OPEN: {PING: _on_ping, REFUSE: _on_refuse},
    }
    """In OPEN, messages of the group are accepted as well."""
