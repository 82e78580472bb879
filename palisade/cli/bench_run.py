"""One benchmark: its requests, its keys, and what was measured, also if it is interrupted."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palisade.cli.bench_statistics import Figures, figures
from palisade.cli.request_progress import RequestProgress
from palisade.cli.session import CliSession, failure_of

if TYPE_CHECKING:
    from palisade.client import Client

FILLING = 256
STOPPED_S = 1.5
"""Longest time to delete the keys after Ctrl-C, or if no request has succeeded."""
FUTILE_PART = 0.7
"""Part of a request's timeout. A request refused later than this has waited for the cluster: nodes refuse after 0.9."""
Request = Callable[["Client", bytes], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """`clients` concurrent requests, `total` requests, over `keys` keys and `connections` connections."""

    what: str
    clients: int
    connections: int
    total: int
    keys: int
    value_bytes: int
    serializable: bool = False


@dataclass(frozen=True, slots=True)
class KeysLeft:
    """The benchmark could not delete its keys, which begin with `prefix`."""

    prefix: str
    reason: str

    def text(self) -> str:
        remedy = f"palisade del {self.prefix} --prefix"
        return f"its keys could not be deleted ({self.reason}); delete them with: {remedy}"

    def shape(self) -> dict[str, str]:
        return {"prefix": self.prefix, "reason": self.reason}


class BenchRun:
    """`left`: set if keys remain. `measures`: whether the first measured request has been sent. `unanswered`: the error
    of the latest request that failed."""

    def __init__(self, session: CliSession, plan: BenchPlan) -> None:
        self._session, self._plan = session, plan
        self._clients: list[Client] = []
        self._prefix = f"/palisade-bench/{secrets.token_hex(8)}/".encode()
        self._latencies: list[float] = []
        self._failures: dict[str, int] = {}
        self._puts = 0
        """Puts that were executed, or may have been."""
        self._began: float | None = None
        self._ended: float | None = None
        self.left: KeysLeft | None = None
        self.unanswered: Exception | None = None
        self.progress = RequestProgress(
            f"bench {plan.what}", lambda: next((each.trouble for each in self._clients if each.trouble), None)
        )

    @property
    def measures(self) -> bool:
        return self._began is not None

    def figures(self) -> Figures:
        """Of the requests that have ended."""
        seconds = 0.0 if self._began is None or self._ended is None else self._ended - self._began
        return figures(seconds, self._latencies, self._failures)

    async def run(self, client: Client) -> None:
        """Measures, and deletes the keys in any case. Raises the error of the first refused request."""
        self._clients.append(client)
        plan, value = self._plan, bytes(self._plan.value_bytes)
        timeout_s = self._session.deadline_s
        try:
            if plan.what == "get":
                await self._fill(client, min(plan.keys, plan.total), value)
                await self._drive(lambda each, key: each.get(key, serializable=plan.serializable))
            else:
                await self._drive(lambda each, key: self._put(each, key, value))
        except asyncio.CancelledError:
            timeout_s = min(STOPPED_S, self._session.deadline_s)
            raise
        finally:
            if self._puts:
                self.progress.begin("deleting its keys")
                if self._is_futile():
                    timeout_s = min(STOPPED_S, timeout_s)
                await self._clean_up(client, timeout_s)

    async def _put(self, client: Client, key: bytes, value: bytes) -> None:
        self._puts += 1
        try:
            await client.put(key, value)
        except Exception as error:
            if was_refused(error):
                self._puts -= 1
            raise

    async def _fill(self, client: Client, count: int, value: bytes) -> None:
        """Write the keys that the benchmark reads. A refusal of all of them leaves none."""
        done = 0

        def progress(number: int) -> None:
            nonlocal done
            done = number
            self.progress.count(number, count)

        self.progress.begin("writing its keys", count)
        self._puts += count
        items = ((self._key(number), value) for number in range(count))
        try:
            await client.put_many(items, outstanding=FILLING, progress=progress)
        except Exception as error:
            if was_refused(error) and not done:
                self._puts -= count
            raise

    async def _clean_up(self, client: Client, timeout_s: float) -> None:
        """Called also after Ctrl-C and after a refusal."""
        from palisade.client.bulk_deletes import PORTION, delete_in_portions

        try:
            if self._plan.keys <= PORTION:
                await client.delete(self._prefix, prefix=True, timeout_s=timeout_s)
            else:
                await delete_in_portions(client, self._prefix, prefix=True, timeout_s=timeout_s)
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.left = KeysLeft(self._prefix.decode(), "interrupted")
            raise
        except Exception as error:
            if failure_of(error, ()) is None:
                raise
            self.left = KeysLeft(self._prefix.decode(), " ".join(str(error).split()))

    def _key(self, number: int) -> bytes:
        return self._prefix + b"%08d" % number

    async def _drive(self, request: Request) -> None:
        from palisade.client import OutcomeUnknown, Unavailable
        from palisade.wire.error_codes import refusal_of

        plan, refusals = self._plan, list[Exception]()
        numbers: Iterator[int] = iter(range(plan.total))

        async def work(client: Client) -> None:
            for number in numbers:
                began = time.perf_counter()
                try:
                    await request(client, self._key(number % plan.keys))
                except (OutcomeUnknown, Unavailable) as error:
                    self.unanswered, code = error, refusal_of(error).code
                    self._failures[code] = self._failures.get(code, 0) + 1
                    self.progress.fail()
                    if self._is_futile():
                        return
                    continue
                except Exception as error:
                    refusals.append(error)
                if refusals:
                    return  # the requests in flight end, so it is known whether they left keys
                self._latencies.append(time.perf_counter() - began)
                self.progress.count(len(self._latencies), plan.total)

        self.progress.begin("connecting")
        async with self._connected(plan.connections) as opened:
            self.progress.begin("", plan.total)
            self._began = time.perf_counter()
            try:
                async with asyncio.TaskGroup() as group:
                    for number in range(plan.clients):
                        group.create_task(work(opened[number % len(opened)]))
            finally:
                self._ended = time.perf_counter()
        if refusals:
            raise refusals[0]

    def _is_futile(self) -> bool:
        """Whether the first requests have waited in vain: each client would wait as long for every further one."""
        waited_s = 0.0 if self._began is None else time.perf_counter() - self._began
        return not self._latencies and waited_s >= FUTILE_PART * self._session.deadline_s

    @contextlib.asynccontextmanager
    async def _connected(self, number: int) -> AsyncIterator[list[Client]]:
        from palisade.client import Client

        session, unreached = self._session, dict[str, str]()
        endpoints = await session.checked_endpoints(unreached)
        async with contextlib.AsyncExitStack() as stack:
            opened = [
                await stack.enter_async_context(
                    Client(endpoints, timeout_s=session.deadline_s, credentials=session.shown)
                )
                for _ in range(number)
            ]
            self._clients += opened
            for client in opened:
                client.add_unreached(unreached)
            try:
                await asyncio.gather(*(client.status() for client in opened))
                yield opened
            finally:
                del self._clients[-number:]


def was_refused(error: Exception) -> bool:
    """Whether the request certainly was not executed."""
    from palisade.client import OutcomeUnknown

    return not isinstance(error, OutcomeUnknown) and failure_of(error, ()) is not None
