"""The load generator for the stream: one client, so many puts under way at any time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

from node.client import Client

VALUE = b"v" * 100
TIMEOUT_S = 30.0


async def stream_puts_per_s(
    endpoints: Sequence[str], keys: Sequence[bytes], *, outstanding: int, duration_s: float
) -> float:
    """Puts that were acknowledged per second. The keys are written round and round."""
    done = 0
    ends_at = time.monotonic() + duration_s

    def until_time_is_up() -> Iterator[bytes]:
        while True:
            for key in keys:
                if time.monotonic() >= ends_at:
                    return
                yield key

    async def put_on(client: Client, source: Iterator[bytes]) -> None:
        nonlocal done
        for key in source:
            await client.put(key, VALUE)
            done += 1

    async with Client(endpoints, timeout_s=TIMEOUT_S) as client:
        source = until_time_is_up()
        began = time.monotonic()
        await asyncio.gather(*(put_on(client, source) for _ in range(outstanding)))
        return done / (time.monotonic() - began)
