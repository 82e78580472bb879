"""The states of a connection of the stream protocol, at the node, and the events that move it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class StreamState(enum.IntEnum):
    """GREETING: waits for HELLO. SIGNED_OUT: the credentials are not valid any more; no further frame is executed, and
    those before it are answered. ENDED: refused, closed or lost."""

    GREETING = enum.auto()
    AUTHENTICATING = enum.auto()
    OPEN = enum.auto()
    SIGNED_OUT = enum.auto()
    ENDED = enum.auto()


class StreamEvent(enum.IntEnum):
    AUTHENTICATE = enum.auto()
    WELCOME = enum.auto()
    SIGN_OUT = enum.auto()
    END = enum.auto()


TRANSITIONS: Mapping[StreamState, Mapping[StreamEvent, StreamState]] = {
    StreamState.GREETING: {
        StreamEvent.AUTHENTICATE: StreamState.AUTHENTICATING,
        StreamEvent.WELCOME: StreamState.OPEN,
        StreamEvent.END: StreamState.ENDED,
    },
    StreamState.AUTHENTICATING: {StreamEvent.WELCOME: StreamState.OPEN, StreamEvent.END: StreamState.ENDED},
    StreamState.OPEN: {StreamEvent.SIGN_OUT: StreamState.SIGNED_OUT, StreamEvent.END: StreamState.ENDED},
    StreamState.SIGNED_OUT: {StreamEvent.SIGN_OUT: StreamState.SIGNED_OUT, StreamEvent.END: StreamState.ENDED},
    StreamState.ENDED: dict.fromkeys(StreamEvent, StreamState.ENDED),
}
"""A connection may end while its credentials or rights are looked up; then the result has no effect."""
