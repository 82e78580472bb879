"""A cluster with a strict region, for the benchmark of fencing: strict writes, fenced reads over HTTP, stalls."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from harness.palisade import Palisade
from harness.processors import own_processor
from harness.system import POLL_S, READY_S, NotReady
from harness.wrk import PUT, SCRIPTS, HttpFigures, run_wrk, write_keys

FENCED = SCRIPTS / "fenced.lua"
STRICT = "strict/"
STALL_WRITES_S = 1.0
USER = "writer"


class FencedCluster(Palisade):
    """`make_strict` once it is ready. `token`, if any, goes with each request."""

    token: str | None = None

    async def make_strict(self) -> None:
        """Make the prefix strict, and wait until every node serves fenced reads. Raises NotReady."""
        url, body = f"{self.urls[0]}/v1/regions/bench", {"prefix": STRICT}
        async with aiohttp.ClientSession(headers=self._headers) as session, session.put(url, json=body) as answer:
            if answer.status != 200:
                raise NotReady(f"the region was refused: {await answer.text()}")
        await self.all_serve(range(len(self.urls)))

    async def all_serve(self, numbers: range | list[int]) -> None:
        async with asyncio.timeout(READY_S):
            for number in numbers:
                while not await self.serves(number):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_S)

    async def serves(self, number: int) -> bool:
        status, found = await self.get(number, "/v1/fencing")
        return status == 200 and found["lease"] is not None and bool(found["lease"]["serves"])

    async def puts(self, number: int, prefix: str, connections: int, seconds: float, keys: int = 1_000) -> HttpFigures:
        """Of keys that begin with `prefix`, at that node."""
        file = self.folder / f"keys-{prefix.strip('/') or 'plain'}"
        write_keys(file, [b"%s%08d" % (prefix.encode(), each) for each in range(keys)])
        return await run_wrk(
            PUT, self.urls[number], file, connections=connections, duration_s=seconds, token=self.token
        )

    async def fenced_reads(
        self, number: int, key: str, connections: int, seconds: float, beside: Iterable[int] = ()
    ) -> HttpFigures:
        """At that node, which has a processor to itself: wrk, the other nodes and the processes `beside` share the
        rest."""
        file = self.folder / "key-fenced"
        file.write_text(quote(key, safe="") + "\n", encoding="ascii")
        others = [process.pid for process in self.processes if process is not self.processes[number]]
        with own_processor(self.processes[number].pid, [*others, *beside]):
            return await run_wrk(
                FENCED, self.urls[number], file, connections=connections, duration_s=seconds, token=self.token
            )

    async def longest_stall_s(self, writer: int, during: Callable[[], Awaitable[object]]) -> float:
        """Of strict writes, one after the other, while `during` runs and some time after it. Raises NotReady."""
        longest, ended = 0.0, asyncio.Event()
        url = f"{self.urls[writer]}/v1/kv/{quote(STRICT + 'stall', safe='')}"

        async def write(session: aiohttp.ClientSession) -> None:
            nonlocal longest
            until: float | None = None
            while until is None or time.monotonic() < until:
                began = time.monotonic()
                async with session.put(url, data=b"x") as answer:
                    if answer.status != 200:
                        raise NotReady(f"a strict write was not answered: {await answer.text()}")
                longest = max(longest, time.monotonic() - began)
                if ended.is_set() and until is None:
                    until = time.monotonic() + STALL_WRITES_S

        async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as tasks:
            tasks.create_task(write(session))
            await asyncio.sleep(STALL_WRITES_S)
            await during()
            ended.set()
        return longest


class SignedIn(FencedCluster):
    """With authorization on: `make_strict` signs a user in that may read and write every key, and takes its token."""

    def __init__(self, folder: Path, password: str) -> None:
        file = folder.with_suffix(".password")
        file.write_text(password)
        options = ("--authorization", "on", "--join-token", password, "--root-password-file", str(file))
        super().__init__(folder, options=options)
        self._password = password
        self._headers = {"Authorization": f"Basic {base64.b64encode(f'root:{password}'.encode()).decode()}"}

    async def make_strict(self) -> None:
        await super().make_strict()
        await self._catalog("create-user", {"user": USER, "password": self._password})
        for privilege in ("read", "write"):
            await self._catalog("grant", {"subject": f"user:{USER}", "privilege": privilege, "prefix": ""})
        signed_in = await self._do("/v1/login", {"user": USER, "password": self._password})
        self.token = signed_in["token"]

    async def _catalog(self, operation: str, body: dict[str, str]) -> None:
        await self._do(f"/v1/catalog/operations/{operation}?wait_s=20", body)

    async def _do(self, path: str, body: dict[str, str]) -> Any:
        status, answer = await self._ask("POST", await self.leader(), path, body)
        if status != 200:
            raise NotReady(f"POST {path} was refused: {answer}")
        return answer
