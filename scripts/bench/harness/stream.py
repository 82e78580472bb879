"""The load generator for the stream: one client with a fixed number of outstanding puts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from palisade.client import Client

VALUE = b"v" * 100
TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class StreamFigures:
    """`done` puts were acknowledged in `seconds`."""

    done: int
    seconds: float

    @property
    def per_s(self) -> float:
        return self.done / self.seconds


async def run_stream(
    endpoints: Sequence[str],
    keys: Sequence[bytes],
    *,
    outstanding: int,
    duration_s: float,
    exactly_once: bool = True,
) -> StreamFigures:
    """Put the keys repeatedly until the time is over."""
    ends_at = time.monotonic() + duration_s

    def until_time_is_up() -> Iterator[tuple[bytes, bytes]]:
        while True:
            for key in keys:
                if time.monotonic() >= ends_at:
                    return
                yield key, VALUE

    async with Client(endpoints, timeout_s=TIMEOUT_S, exactly_once=exactly_once) as client:
        began = time.monotonic()
        done = await client.put_many(until_time_is_up(), outstanding=outstanding)
        return StreamFigures(done, time.monotonic() - began)
