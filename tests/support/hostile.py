"""Attacks on a port: noise, incomplete messages, wrong sizes, and silent connections."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
from collections.abc import AsyncIterator
from pathlib import Path

TWO_GIB = (2 * 1024**3 - 1).to_bytes(4, "big")
FRAME_OF_2_GIB = TWO_GIB + b"\x01\x00\x00\x00\x00" + b"x" * 65536
NOISE_BYTES = 64 * 1024


def openings(seed: int) -> list[bytes]:
    """First bytes of a connection that no valid client sends."""
    noise = random.Random(seed)
    return [
        b"",
        b"\x00",
        b"\xff" * 64,
        (7).to_bytes(4, "big") + b"half",
        FRAME_OF_2_GIB,
        b"\xff\xff\xff\xff" + b"x" * 1000,
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 200_000,
        b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483647\r\n\r\n" + b"{" * 65536,
        b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7fffffff\r\n" + b"{" * 65536,
        b"PUT /v1/kv/a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        *(noise.randbytes(NOISE_BYTES) for _ in range(20)),
    ]


async def talk(address: str, opening: bytes, *, hang_up: bool) -> None:
    """Send it; then disconnect at once, or wait until the other side does, as long as it takes."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(opening)
            await writer.drain()
            while not hang_up and await reader.read(65536):
                pass
        finally:
            writer.close()


@contextlib.asynccontextmanager
async def idle_connections(address: str, number: int, opening: bytes = b"") -> AsyncIterator[None]:
    """As many connections that send no more than their opening, if anything."""
    host, _, port = address.rpartition(":")
    writers: list[asyncio.StreamWriter] = []
    try:
        for _ in range(number):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection(host, int(port))
                writer.write(opening)
                writers.append(writer)
        yield
    finally:
        for writer in writers:
            writer.transport.abort()


def private_bytes(pid: int) -> int:
    """Private memory of a process, without mapped files."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def open_files(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def raise_file_limit() -> int:
    """Raises the limit of open files to the maximum for this user; returns it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
