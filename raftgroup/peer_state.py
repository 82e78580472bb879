"""The states of a connection between two members, at either end, and the events that move it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class PeerState(enum.IntEnum):
    """CONNECTING: there is no transport yet. GREETING: the greetings are exchanged. CLOSING: nothing more is sent, and
    what arrives is ignored."""

    CONNECTING = enum.auto()
    GREETING = enum.auto()
    OPEN = enum.auto()
    CLOSING = enum.auto()
    CLOSED = enum.auto()


class PeerEvent(enum.IntEnum):
    CONNECTED = enum.auto()
    GREETED = enum.auto()
    CLOSE = enum.auto()
    LOST = enum.auto()


TRANSITIONS: Mapping[PeerState, Mapping[PeerEvent, PeerState]] = {
    PeerState.CONNECTING: {
        PeerEvent.CONNECTED: PeerState.GREETING,
        PeerEvent.CLOSE: PeerState.CLOSING,
        PeerEvent.LOST: PeerState.CLOSED,
    },
    PeerState.GREETING: {
        PeerEvent.GREETED: PeerState.OPEN,
        PeerEvent.CLOSE: PeerState.CLOSING,
        PeerEvent.LOST: PeerState.CLOSED,
    },
    PeerState.OPEN: {PeerEvent.CLOSE: PeerState.CLOSING, PeerEvent.LOST: PeerState.CLOSED},
    PeerState.CLOSING: {
        PeerEvent.CONNECTED: PeerState.CLOSING,
        PeerEvent.CLOSE: PeerState.CLOSING,
        PeerEvent.LOST: PeerState.CLOSED,
    },
    PeerState.CLOSED: {
        PeerEvent.CONNECTED: PeerState.CLOSED,
        PeerEvent.CLOSE: PeerState.CLOSED,
        PeerEvent.LOST: PeerState.CLOSED,
    },
}
