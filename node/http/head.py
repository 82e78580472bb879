"""Heads of HTTP messages on the hot path: which requests are plain enough for it, and how its answers begin. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

END_OF_HEAD = b"\r\n\r\n"
REQUEST_LINE = re.compile(rb"POST (/v3/[a-z/]+) HTTP/1\.1")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t]*)")
PLAIN_HEADERS = {b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"content-type"}

Reply = Callable[[int, bytes], None]
Unary = Callable[[bytes, Reply], None]


class Plan(NamedTuple):
    """What a head asks for: whom to call, and how many bytes of body it announces."""

    call: Unary
    length: int


def make_plan(head: bytes, unary: Mapping[bytes, Unary]) -> Plan | None:
    """Read the head of a request; None for whatever aiohttp should look at."""
    first, *lines = head[: -len(END_OF_HEAD)].split(b"\r\n")
    line = REQUEST_LINE.fullmatch(first)
    call = unary.get(line[1]) if line else None
    if call is None:
        return None
    length: int | None = None
    for header in lines:
        match = HEADER_LINE.fullmatch(header)
        if match is None:
            return None
        name, value = match[1].lower(), match[2].strip()
        if name == b"content-length":
            if length is not None or not value.isdigit() or len(value) > 12:
                return None
            length = int(value)
        elif name == b"connection":
            if value.lower() != b"keep-alive":
                return None
        elif name not in PLAIN_HEADERS:
            return None
    return Plan(call, length) if length is not None else None


def make_head(status: int, content_type: bytes = b"application/json", *, close: bool = False) -> bytes:
    """The head of a response, up to the value of Content-Length."""
    reason = HTTPStatus(status).phrase.encode()
    extra = b"Retry-After: 1\r\n" if status == 503 else b""
    extra += b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%bContent-Length: " % (status, reason, content_type, extra)
