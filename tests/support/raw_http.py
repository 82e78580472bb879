"""HTTP as bytes, for requests that no client library would send."""

from __future__ import annotations

import asyncio
import json
from types import TracebackType
from typing import Any


class RawHttp:
    """One connection. `answer` reads one response with a Content-Length."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> RawHttp:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.writer.close()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    def post(self, path: str, body: bytes, extra: str = "") -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: test\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
        self.send(head.encode() + body)

    async def answer(self) -> tuple[int, bytes]:
        """(status, body)"""
        status, _, body = await self.answer_with_head()
        return status, body

    async def answer_with_head(self) -> tuple[int, dict[str, str], bytes]:
        """(status, headers by their name in lower case, body)"""
        async with asyncio.timeout(5):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            body = await self.reader.readexactly(int(headers.get("content-length", 0)))
            return int(first.split(" ", 2)[1]), headers, body

    async def json(self) -> tuple[int, Any]:
        status, body = await self.answer()
        return status, json.loads(body)

    async def end(self) -> bytes:
        """Everything until the node closes the connection."""
        async with asyncio.timeout(5):
            return await self.reader.read()
