"""Three servers of one kind on loopback, in a folder of their own; Palisade and etcd differ only below this file.

Both answer etcd's JSON paths, so the leader is found, and everything is measured, in the same way.
"""

from __future__ import annotations

import asyncio
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from harness.process import Process

NODES = 3
HOST = "127.0.0.1"
READY_S = 60.0
POLL_S = 0.02
ASK_S = 2.0


class NotReady(Exception):
    """Some servers were not ready in time; the text names them."""


class System(ABC):
    """`async with` it: started and ready inside, ended and without processes afterwards."""

    name: str
    version: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.urls: list[str] = []
        self.processes: list[Process] = []
        self._headers: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None

    @abstractmethod
    async def is_ready(self, number: int) -> bool:
        """Whether server `number` reports that it accepts requests."""

    async def __aenter__(self) -> System:
        self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ASK_S))
        try:
            await self.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
        if self._session is not None:
            await self._session.close()

    async def start(self, numbers: Iterable[int] = range(NODES)) -> float:
        """Start these servers; returns after how many seconds the last of them was ready."""
        numbers = list(numbers)
        began = time.monotonic()
        await asyncio.gather(*(self.processes[number].start() for number in numbers))
        try:
            async with asyncio.timeout(READY_S):
                await asyncio.gather(*(self._until_ready(number) for number in numbers))
        except TimeoutError:
            names = ", ".join(self.processes[number].name for number in numbers)
            raise NotReady(f"{names}: not ready within {READY_S:g} s; their logs are in {self.folder}") from None
        return time.monotonic() - began

    async def stop(self) -> None:
        await asyncio.gather(*(process.stop() for process in self.processes))

    async def kill(self, numbers: Iterable[int] = range(NODES)) -> None:
        await asyncio.gather(*(self.processes[number].kill() for number in numbers))

    async def leader(self) -> int:
        """The number of the server that leads."""
        async with asyncio.timeout(READY_S):
            while True:
                for number in range(NODES):
                    status = await self.post(number, "/v3/maintenance/status", {})
                    if status and status.get("leader", "0") == status["header"]["member_id"]:
                        return number
                await asyncio.sleep(POLL_S)

    async def get(self, number: int, path: str) -> tuple[int, Any]:
        """(status, JSON); (0, None) where there is no answer."""
        return await self._ask("GET", number, path, None)

    async def post(self, number: int, path: str, body: Any) -> Any:
        """The JSON of an answer with status 200; None for any other end."""
        status, answer = await self._ask("POST", number, path, body)
        return answer if status == 200 else None

    async def _ask(self, method: str, number: int, path: str, body: Any) -> tuple[int, Any]:
        if self._session is None:
            raise RuntimeError("use it in 'async with'")
        try:
            async with self._session.request(
                method, self.urls[number] + path, json=body, headers=self._headers
            ) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return 0, None

    async def _until_ready(self, number: int) -> None:
        while not await self.is_ready(number):
            _ = self.processes[number].pid
            await asyncio.sleep(POLL_S)


def free_base_port(offsets: Sequence[int]) -> int:
    """A port such that it and all these offsets are free right now."""
    for base in range(20_000, 32_000, 400):
        try:
            for offset in offsets:
                with socket.socket() as probe:
                    probe.bind((HOST, base + offset))
            return base
        except OSError:
            continue
    raise NotReady("no free block of ports between 20000 and 32000: end what occupies them")
