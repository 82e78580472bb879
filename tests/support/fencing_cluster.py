"""A cluster of real processes with a reader beside each vault and a writer of one strict key."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from tests.support.fence_history import ReadSoFar, violations
from tests.support.fence_reader import now
from tests.support.ordered_answers import Answer
from tests.support.preloaded import Preloaded
from tests.support.processes import Cluster, NodeProcess, until

KEY = "/strict/x"
STDERR = 2
ENOUGH = 100
"""Reads from each vault before any fault, so that later results are meaningful."""


async def lease(node: NodeProcess) -> dict[str, Any]:
    answer = await node.get("/v1/fencing", timeout_s=2)
    return (answer or {}).get("lease") or {}


async def serving(nodes: Sequence[NodeProcess]) -> None:
    async def all_serve() -> bool:
        return all([(await lease(node)).get("serves") for node in nodes])

    await until(all_serve, "every node serving fenced reads")


async def make_strict(node: NodeProcess) -> None:
    answer = await node.ask("PUT", "/v1/regions/strict", {"prefix": "/strict/"})
    assert (answer or {}).get("http_status") == 200, answer


class History(AbstractAsyncContextManager["History"]):
    """Writes 1, 2, 3 ... through `writer` and has every node's vault read meanwhile, until it is left."""

    def __init__(self, cluster: Cluster, nodes: Sequence[NodeProcess], writer: Callable[[], NodeProcess]) -> None:
        self._cluster, self._nodes, self._writer = cluster, nodes, writer
        self._readers: list[Preloaded] = []
        self._known = {node.id: ReadSoFar(self._file(node), node.id) for node in nodes}
        self.answered: list[Answer] = []
        self.failures: list[Any] = []
        self.value = 0
        self._task: asyncio.Task[None] | None = None

    def _start_readers(self) -> None:
        for node in self._nodes:
            self._file(node).unlink(missing_ok=True)
            arguments = [str(node.data_dir / "vault"), KEY, str(self._file(node))]
            self._readers.append(Preloaded(arguments, STDERR, STDERR, module="tests.support.fence_reader"))

    @contextlib.contextmanager
    def readers(self) -> Iterator[None]:
        """The readers alone, without this writer."""
        self._start_readers()
        try:
            yield
        finally:
            self._stop_readers()

    def _stop_readers(self) -> None:
        for reader in self._readers:
            reader.kill()
            reader.wait()

    async def __aenter__(self) -> History:
        self._start_readers()
        self._task = asyncio.create_task(self._write())
        try:
            await self.writes(20)
            for node in self._nodes:
                await self._follows(node)
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._end()

    async def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._stop_readers()

    async def _follows(self, node: NodeProcess) -> None:
        """The next step may end this node, and a reader that has just started would show nothing."""
        await until(lambda: len(self.reads(node)[0]) >= ENOUGH, f"{ENOUGH} values read from the vault of {node.id}")

    def _file(self, node: NodeProcess) -> Path:
        return self._cluster.folder / f"reads-{node.id}.txt"

    async def _write(self) -> None:
        """Over one lasting connection: a new one for each write would sometimes take a second by itself."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session:
            while True:
                self.value += 1
                value, began = self.value, now()
                failure = await self.put(session, value)
                if failure is None:
                    self.answered.append(Answer(began, now(), value, "the writer"))
                else:
                    self.failures.append(failure)
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.001)

    async def put(self, session: aiohttp.ClientSession, value: int) -> str | None:
        """The error; None if it is acknowledged."""
        url = f"http://{self._writer().http}/v1/kv/{quote(KEY, safe='')}"
        try:
            async with session.put(URL(url, encoded=True), data=str(value)) as answer:
                return None if answer.status == 200 else await answer.text()
        except (aiohttp.ClientError, TimeoutError) as error:
            return repr(error)

    async def writes(self, more: int) -> None:
        wanted = len(self.answered) + more
        await until(lambda: len(self.answered) >= wanted, f"{more} more strict writes")

    async def longest_stall(self, during: Callable[[], Awaitable[Any]], writes_after: int = 50) -> float:
        """Of the writes that were pending since `during` began, in seconds."""
        began = now()
        await during()
        await self.writes(writes_after)
        return max(each.ended - max(each.began, began) for each in self.answered if each.ended > began)

    def reads(self, node: NodeProcess) -> tuple[list[Answer], list[tuple[float, str]]]:
        """None before the reader has made its file."""
        return self._known[node.id].now()

    def check(self, at_least: int = ENOUGH) -> None:
        """No read was stale; and there were enough reads to be sure."""
        everything: list[Answer] = []
        for node in self._nodes:
            answers, other = self.reads(node)
            errors = {word for _, word in other if word.startswith("error")}
            assert not errors, f"the reader of {node.id} met {errors}"
            assert len(answers) >= at_least, f"the reader of {node.id} got only {len(answers)} values: {other[-3:]}"
            everything += answers
        found = violations(everything, self.answered)
        assert not found, f"{len(found)} of {len(everything)} reads: {found[:5]}"

    def violations(self) -> list[str]:
        """So far."""
        return violations([answers for node in self._nodes for answers in self.reads(node)[0]], self.answered)
