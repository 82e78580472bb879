"""Heads of HTTP messages on the fast path: which requests are simple enough for it, and the heads of responses.
Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple, Protocol

from palisade.service.authorization.callers import Access
from palisade.service.callers import Caller

END_OF_HEAD = b"\r\n\r\n"
GET = b"GET "
GET_LINE = re.compile(rb"GET (/v1/[a-z]+/)([^? #]+) HTTP/1\.1")
REQUEST_LINE = re.compile(rb"POST (/v3/[a-z/]+) HTTP/1\.1")
AUTHORIZATION = b"\r\nAuthorization: "
HEADER_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([ -~\t]*)")
PLAIN_HEADERS = {b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"content-type"}


class HttpReply(Protocol):
    def __call__(self, status: int, payload: bytes, headers: bytes = b"", /) -> None:
        """`headers`: whole lines, in addition to those of every response."""
        ...


Unary = Callable[[bytes, HttpReply, Caller], None]


class Hot(NamedTuple):
    """A path that is served without aiohttp. `refuse` answers callers without the permission; `v1`: errors are
    problems."""

    path: str
    call: Unary
    access: Access
    refuse: Callable[[Exception, HttpReply], None]
    v1: bool = False


class RequestPlan(NamedTuple):
    """The request in a head, the length of the body that it declares, and the value of its Authorization header."""

    hot: Hot
    length: int
    authorization: str | None = None
    thing: bytes | None = None
    """The key of a GET; a POST has a body instead."""

    def __str__(self) -> str:
        """For the audit log."""
        if self.thing is None:
            return f"POST {self.hot.path}"
        return f"GET {self.hot.path}{self.thing.decode('ascii', 'replace')}"


class Gets:
    """GETs of one key below a path, by that path. The key is in the path, percent-encoded.

    A client sends the same headers each time: headers that were found to be simple are looked up.
    """

    def __init__(self, calls: Mapping[str, Hot], kept_max: int = 1024) -> None:
        self._calls = {path.encode(): call for path, call in calls.items()}
        self._kept_max = kept_max
        self._plain: set[bytes] = set()

    def plan(self, head: bytes, authorization: str | None = None) -> RequestPlan | None:
        """`head` without the Authorization header. None for a request that aiohttp must handle."""
        end = head.find(b"\r\n")
        line = GET_LINE.fullmatch(head, 0, end)
        call = self._calls.get(line[1]) if line else None
        if call is None or line is None or not self._is_plain(head[end + 2 : -len(END_OF_HEAD)]):
            return None
        return RequestPlan(call, 0, authorization, line[2])

    def _is_plain(self, headers: bytes) -> bool:
        if headers in self._plain:
            return True
        for header in headers.split(b"\r\n") if headers else ():
            match = HEADER_LINE.fullmatch(header)
            if match is None:
                return False
            name, value = match[1].lower(), match[2].strip().lower()
            if name == b"connection" and value == b"keep-alive":
                continue
            if name not in PLAIN_HEADERS:
                return False
        if len(self._plain) >= self._kept_max:
            self._plain.clear()
        self._plain.add(headers)
        return True


def without_authorization(head: bytes) -> tuple[bytes, str | None]:
    """The head without the Authorization header, if written in its usual form, and the value of that header. Cached
    heads therefore contain no secrets."""
    at = head.find(AUTHORIZATION)
    if at < 0:
        return head, None
    end = head.find(b"\r\n", at + 2)
    value = head[at + len(AUTHORIZATION) : end]
    if HEADER_LINE.fullmatch(b"Authorization: " + value) is None:
        return head, None
    return head[:at] + head[end:], value.decode()


def make_plan(head: bytes, unary: Mapping[bytes, Hot]) -> RequestPlan | None:
    """Parses a head without the Authorization header; None for a request that aiohttp must handle."""
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
    return RequestPlan(call, length) if length is not None else None


def make_head(status: int, content_type: bytes = b"application/json", *, close: bool = False) -> bytes:
    """The head of a response, up to the value of Content-Length."""
    reason = HTTPStatus(status).phrase.encode()
    extra = b"Retry-After: 1\r\n" if status == 503 else b""
    extra += b"Connection: close\r\n" if close else b""
    return b"HTTP/1.1 %d %b\r\nContent-Type: %b\r\n%bContent-Length: " % (status, reason, content_type, extra)
