"""Heads of HTTP messages on the fast path: which requests are simple enough for it, and the heads of responses.
Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import NamedTuple, Protocol

from palisade.service.authorization.callers import Access
from palisade.service.callers import Caller

CRLF = b"\r\n"
END_OF_HEAD = CRLF + CRLF
POST = b"POST "
KEY_LINE = re.compile(rb"((?:GET|PUT) /v1/[a-z]+/)([A-Za-z0-9%._~!$&'()*+,;=:@/-]+) HTTP/1\.1")
REQUEST_LINE = re.compile(rb"POST (/v3/[a-z/]+) HTTP/1\.1")
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t]*)")
PLAIN_HEADERS = {b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"content-type"}


class HttpReply(Protocol):
    def __call__(self, status: int, payload: bytes, headers: bytes = b"", /) -> None:
        """`headers`: whole lines, in addition to those of every response."""
        ...


Unary = Callable[[bytes, HttpReply, Caller], None]
OfKey = Callable[[bytes, bytes, HttpReply, Caller], None]
"""The key as it stands in the path, the body, and the rest of `Unary`."""


class Hot(NamedTuple):
    """A path that is served without aiohttp. `action`: method and path, ending in `/` if a key follows; then `call`
    is an `OfKey`. `refuse` answers callers without the permission; `v1`: errors are problems."""

    action: str
    call: Callable[..., None]
    access: Access
    refuse: Callable[[Exception, HttpReply], None]
    v1: bool = False


class RequestPlan(NamedTuple):
    """The request in a head. `length`: of the body that it declares. `key`: as in the path."""

    hot: Hot
    call: Unary
    length: int
    key: bytes = b""

    def __str__(self) -> str:
        """For the audit log."""
        return self.hot.action + self.key.decode("ascii", "replace")


class KeyPaths:
    """GET and PUT of one key below a path. The key stands in the path, percent-encoded.

    A client repeats its headers: what they mean is kept.
    """

    def __init__(self, paths: Iterable[Hot], kept_max: int = 1024) -> None:
        self._paths = {hot.action.encode(): hot for hot in paths}
        self._kept_max = kept_max
        self._meanings: dict[bytes, HeadersMeaning] = {}

    def plan(self, line: bytes, headers: bytes) -> RequestPlan | None:
        """`headers` without Authorization. None for a request that aiohttp must handle."""
        match = KEY_LINE.fullmatch(line)
        hot = self._paths.get(match[1]) if match else None
        if hot is None or match is None:
            return None
        meaning = self._meanings.get(headers)
        if meaning is None:
            if len(self._meanings) >= self._kept_max:
                self._meanings.clear()
            meaning = self._meanings[headers] = meaning_of(headers)
        if not meaning.simple or (meaning.length is None) is line.startswith(b"PUT"):
            return None
        return RequestPlan(hot, partial(hot.call, match[2]), meaning.length or 0, match[2])


class HeadersMeaning(NamedTuple):
    """`simple`: the fast path may handle the request. `length`: the declared length of the body, if any."""

    simple: bool
    length: int | None = None


def meaning_of(headers: bytes) -> HeadersMeaning:
    length: int | None = None
    for header in headers.split(CRLF)[1:-1]:
        match = HEADER_LINE.fullmatch(header)
        if match is None:
            return HeadersMeaning(False)
        name, value = match[1].lower(), match[2].strip()
        if name == b"content-length":
            if length is not None or not value.isdigit() or len(value) > 12:
                return HeadersMeaning(False)
            length = int(value)
        elif name == b"connection":
            if value.lower() != b"keep-alive":
                return HeadersMeaning(False)
        elif name not in PLAIN_HEADERS:
            return HeadersMeaning(False)
    return HeadersMeaning(True, length)


def make_plan(line: bytes, headers: bytes, unary: Mapping[bytes, Hot]) -> RequestPlan | None:
    """Parses the head of a POST, `headers` without Authorization; None for a request that aiohttp must handle."""
    match = REQUEST_LINE.fullmatch(line)
    hot = unary.get(match[1]) if match else None
    if hot is None:
        return None
    meaning = meaning_of(headers)
    return RequestPlan(hot, hot.call, meaning.length) if meaning.simple and meaning.length is not None else None


def make_head(status: int, content_type: bytes = b"application/json", *, close: bool = False) -> bytes:
    """The head of a response, up to the value of Content-Length."""
    reason = HTTPStatus(status).phrase.encode()
    extra = b"Retry-After: 1\r\n" if status == 503 else b""
    extra += b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%bContent-Length: " % (status, reason, content_type, extra)
