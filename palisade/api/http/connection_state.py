"""The states of an HTTP connection at a node, and the events that move it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class HttpState(enum.IntEnum):
    """READY, HEAD and BODY: nothing, a part of the head, or the head and a part of the body of a request has arrived.
    BUSY: it is being answered. AIOHTTP_...: the same of a connection that aiohttp handles; aiohttp does not report a
    complete head before it handles the request."""

    READY = enum.auto()
    HEAD = enum.auto()
    BODY = enum.auto()
    BUSY = enum.auto()
    AIOHTTP_READY = enum.auto()
    AIOHTTP_HEAD = enum.auto()
    AIOHTTP_BUSY = enum.auto()
    CLOSED = enum.auto()


class HttpEvent(enum.IntEnum):
    PART_OF_HEAD = enum.auto()
    PART_OF_BODY = enum.auto()
    REQUEST = enum.auto()
    ANSWERED = enum.auto()
    HAND_OVER = enum.auto()
    CLOSE = enum.auto()


_OF_A_REQUEST = {
    HttpEvent.PART_OF_BODY: HttpState.BODY,
    HttpEvent.REQUEST: HttpState.BUSY,
    HttpEvent.HAND_OVER: HttpState.AIOHTTP_HEAD,
    HttpEvent.CLOSE: HttpState.CLOSED,
}

TRANSITIONS: Mapping[HttpState, Mapping[HttpEvent, HttpState]] = {
    HttpState.READY: {HttpEvent.PART_OF_HEAD: HttpState.HEAD, **_OF_A_REQUEST},
    HttpState.HEAD: {HttpEvent.PART_OF_HEAD: HttpState.HEAD, **_OF_A_REQUEST},
    HttpState.BODY: _OF_A_REQUEST,
    HttpState.BUSY: {HttpEvent.ANSWERED: HttpState.READY, HttpEvent.CLOSE: HttpState.CLOSED},
    HttpState.AIOHTTP_READY: {
        HttpEvent.PART_OF_HEAD: HttpState.AIOHTTP_HEAD,
        HttpEvent.REQUEST: HttpState.AIOHTTP_BUSY,
        HttpEvent.ANSWERED: HttpState.AIOHTTP_READY,
        HttpEvent.CLOSE: HttpState.CLOSED,
    },
    HttpState.AIOHTTP_HEAD: {
        HttpEvent.PART_OF_HEAD: HttpState.AIOHTTP_HEAD,
        HttpEvent.REQUEST: HttpState.AIOHTTP_BUSY,
        HttpEvent.ANSWERED: HttpState.AIOHTTP_READY,
        HttpEvent.CLOSE: HttpState.CLOSED,
    },
    HttpState.AIOHTTP_BUSY: {
        HttpEvent.PART_OF_HEAD: HttpState.AIOHTTP_BUSY,
        HttpEvent.REQUEST: HttpState.AIOHTTP_BUSY,
        HttpEvent.ANSWERED: HttpState.AIOHTTP_READY,
        HttpEvent.CLOSE: HttpState.CLOSED,
    },
    HttpState.CLOSED: dict.fromkeys(HttpEvent, HttpState.CLOSED),
}
"""A connection may be lost before its request is answered. The body of a request is what is left of the bytes that have
arrived, so a BODY has no part of a head; aiohttp may handle a request, and be ready, whatever has arrived since."""

BEGUN = {state: row[HttpEvent.REQUEST] for state, row in TRANSITIONS.items() if HttpEvent.REQUEST in row}
ANSWERED = {state: row[HttpEvent.ANSWERED] for state, row in TRANSITIONS.items() if HttpEvent.ANSWERED in row}
"""Two columns of the table, for the hot path."""
