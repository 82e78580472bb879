"""The first frames of a connection between members, as values; `peer_connection.py` carries them.

    HELLO   ["palisade-peer", protocol version, greeting]    from the dialler, then from the side that accepts
    REFUSE  reason (text)                                    instead of HELLO, or in answer to it; then the end
    PING    nothing                                          from the dialler, once a second
    PONG    nothing                                          the answer

The greeting is a map defined by the group, except for its text field "member", the sender. No other frame is accepted
before both sides have exchanged greetings.
"""

from __future__ import annotations

from typing import Any

from palisade.base.errors import PalisadeError

PROTOCOL_VERSION = 3
GROUP_KINDS = 16
"""Kinds below this one belong to the transport."""

HELLO = 1
REFUSE = 2
PING = 3
PONG = 4

_MAGIC = "palisade-peer"
_REASON_CHARACTERS_MAX = 1000


class HandshakeRefused(PalisadeError):
    """The other side is not an acceptable peer. The text gives the reason."""

    code = "handshake-refused"


def hello(greeting: dict[str, Any]) -> list[Any]:
    return [_MAGIC, PROTOCOL_VERSION, greeting]


def read_hello(body: Any) -> tuple[str, dict[str, Any]]:
    """The sending member and its greeting. Raises HandshakeRefused."""
    if not isinstance(body, list) or len(body) < 2 or body[0] != _MAGIC:
        raise HandshakeRefused("this is the peer port of a Palisade node, for other nodes only")
    if body[1] != PROTOCOL_VERSION:
        raise HandshakeRefused(
            f"protocol version {str(body[1])[:20]} is not supported, this node uses {PROTOCOL_VERSION}: "
            "run the same release of palisade on both nodes"
        )
    greeting = body[2] if len(body) == 3 else None
    member = greeting.get("member") if isinstance(greeting, dict) else None
    if not isinstance(greeting, dict) or not isinstance(member, str) or not member:
        raise HandshakeRefused("the greeting lacks the name of its member")
    return member, greeting


def read_reason(body: Any) -> str:
    """The reason in a REFUSE, safe to log."""
    text = body if isinstance(body, str) else "no reason given"
    return "".join(c if c.isprintable() else "?" for c in text[:_REASON_CHARACTERS_MAX])
