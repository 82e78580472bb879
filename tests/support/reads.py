"""Linearizable reads of one counter beside writes of it, and the check that none of them was stale.

The counter only grows. Thus a read is stale exactly if it returns less than an acknowledged write or any read from
before it began; and a value is invalid if no client has begun to write it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from palisade.client import Client, OutcomeUnknown, Unavailable

KEY = b"counter"
PAUSE_S = 0.002
"""Of a reader, between two reads: without it they take both cores."""


class CounterReads:
    """`async with CounterReads(endpoints) as reads:` writes through all endpoints, and reads through each of them."""

    def __init__(self, endpoints: Iterable[str], *, readers: int = 2, timeout_s: float = 10.0) -> None:
        self._endpoints = list(endpoints)
        self._readers = readers
        self._timeout_s = timeout_s
        self._begun = 0
        self._known = 0
        self.writes = 0
        self.reads = dict.fromkeys(self._endpoints, 0)
        self.refused = 0
        self.stale: list[str] = []
        self._stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> CounterReads:
        async with Client(self._endpoints, timeout_s=self._timeout_s) as client:
            await client.put(KEY, b"0")
        self._tasks.append(asyncio.ensure_future(self._write()))
        for endpoint in self._endpoints:
            self._tasks += [asyncio.ensure_future(self._read(endpoint)) for _ in range(self._readers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def _write(self) -> None:
        async with Client(self._endpoints, timeout_s=self._timeout_s) as client:
            while not self._stopping:
                self._begun += 1
                number = self._begun
                try:
                    await client.put(KEY, str(number))
                except (OutcomeUnknown, Unavailable):
                    continue
                self._known = max(self._known, number)
                self.writes += 1

    async def _read(self, endpoint: str) -> None:
        async with Client([endpoint], timeout_s=self._timeout_s, follow_leader=False) as client:
            while not self._stopping:
                await self._read_and_judge(client, endpoint)
                await asyncio.sleep(PAUSE_S)

    async def _read_and_judge(self, client: Client, endpoint: str) -> None:
        least = self._known
        try:
            found = await client.get(KEY)
        except Unavailable:
            self.refused += 1
            return
        value = int(found.value) if found is not None else -1
        if not least <= value <= self._begun:
            self.stale.append(f"{endpoint} shows {value}; {least} was known before, {self._begun} was begun to write")
        self._known = max(self._known, value)
        self.reads[endpoint] += 1
