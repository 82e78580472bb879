"""palisade bench: throughput and latency of the cluster, measured from this machine."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from palisade.cli.bench_statistics import Figures, figures
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import client_options
from palisade.cli.request_progress import RequestProgress
from palisade.cli.session import INTERRUPTED, UNAVAILABLE, CliSession, Failure, failure_of
from palisade.cli.stop_signals import Stopped, stoppable

if TYPE_CHECKING:
    from palisade.client import Client

CLIENTS_MAX = 1000
OUTSTANDING_MAX = 2000
TOTAL_MAX = 10_000_000
VALUE_BYTES_MAX = 1024 * 1024
KEYS_MAX = 1_000_000
FILLING = 256

Command = Callable[..., None]
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


@click.group()
def bench() -> None:
    """Measure throughput and latencies from this machine.

    The benchmark makes its own keys and deletes them afterwards. This process generates the whole load; if it runs on a
    machine of the cluster, the figures include its CPU time.
    """


def sizes(command: Command) -> Command:
    for option in (
        click.option("--keys", type=WholeNumber(1, KEYS_MAX), default=10_000, show_default=True,
                     help="Number of different keys."),
        click.option("--value-size", "value_bytes", type=WholeNumber(0, VALUE_BYTES_MAX), default=100,
                     show_default=True, metavar="BYTES", help="Size of each value."),
        click.option("--total", type=WholeNumber(1, TOTAL_MAX), default=10_000, show_default=True,
                     help="Number of requests."),
    ):  # fmt: skip
        command = option(command)
    return command


def clients(most: int, default: int, what: str) -> Callable[[Command], Command]:
    return click.option("--clients", type=WholeNumber(1, most), default=default, show_default=True, help=what)


@bench.command()
@clients(CLIENTS_MAX, 64, "Connections, each with one request at a time.")
@sizes
@client_options
def put(session: CliSession, clients: int, total: int, value_bytes: int, keys: int) -> None:
    """Measure writes.

    Each client waits for its response before the next request.
    """
    measure(session, BenchPlan("put", clients, clients, total, keys, value_bytes))


@bench.command()
@clients(CLIENTS_MAX, 64, "Connections, each with one request at a time.")
@click.option("--serializable", is_flag=True, help="Read the state of the node without a quorum.")
@sizes
@client_options
def get(session: CliSession, clients: int, total: int, value_bytes: int, keys: int, serializable: bool) -> None:
    """Measure linearizable reads of single keys."""
    measure(session, BenchPlan("get", clients, clients, total, keys, value_bytes, serializable))


@bench.command()
@clients(OUTSTANDING_MAX, 1024, "Outstanding requests.")
@sizes
@client_options
def stream(session: CliSession, clients: int, total: int, value_bytes: int, keys: int) -> None:
    """Measure concurrent writes over one connection."""
    measure(session, BenchPlan("stream", clients, 1, total, keys, value_bytes))


@dataclass(frozen=True, slots=True)
class KeysLeft:
    """The benchmark could not delete its keys, which begin with `prefix`."""

    prefix: str
    reason: str

    def text(self) -> str:
        remedy = f"palisade del {self.prefix} --prefix"
        return f"palisade bench: its keys could not be deleted ({self.reason}); delete them with: {remedy}"

    def shape(self) -> dict[str, str]:
        return {"prefix": self.prefix, "reason": self.reason}


def measure(session: CliSession, plan: BenchPlan) -> None:
    left: list[KeysLeft] = []

    async def run(client: Client) -> Figures:
        async with session.notice_of(client):
            await client.status()
        clients = [client]
        progress = RequestProgress(
            f"bench {plan.what}", lambda: next((each.trouble for each in clients if each.trouble), None)
        )
        try:
            async with session.shown_progress(progress):
                return await run_plan(session, plan, clients, progress, left)
        except (Exception, asyncio.CancelledError) as error:
            if session.as_json and left:
                fail_with(session, error, left[0])
            raise
        finally:
            for each in () if session.as_json else left:
                click.echo(each.text(), err=True)

    try:
        found = session.call(lambda client: stoppable(lambda: run(client)), notice=False)
    except Stopped as stopped:
        sys.exit(128 + stopped.number)
    thousands = "" if session.as_csv else ","
    rows: list[tuple[str, str]] = [("requests", f"{found.done:{thousands}}"), ("seconds", f"{found.seconds:.2f}")]
    rows += [(f"failed: {code}", f"{count:{thousands}}") for code, count in found.failures.items()]
    rows += [("requests per second", f"{found.per_s:{thousands}.0f}")]
    rows += [(f"{name}, ms", f"{value:.2f}") for name, value in found.latencies_ms().items()]
    session.rows(shape_of(plan, found, left), [f"bench {plan.what}", "value"], rows)
    if not found.done:
        sys.exit(UNAVAILABLE)


def fail_with(session: CliSession, error: BaseException, left: KeysLeft) -> None:
    """Fails with --json after a refusal or Ctrl-C: the one object on stderr also names the keys that remain.

    Returns if the error is a bug."""
    failure = failure_of(error, session.endpoints, session.source)
    if isinstance(error, asyncio.CancelledError):
        failure = Failure(INTERRUPTED, "interrupted", "interrupted; its keys could not be deleted", True)
    if failure is not None:
        session.fail(replace(failure, keys_left=left.shape()))


def shape_of(plan: BenchPlan, found: Figures, left: list[KeysLeft]) -> dict[str, Any]:
    return {
        "bench": plan.what,
        "clients": plan.clients,
        "total": plan.total,
        "keys": plan.keys,
        "value_bytes": plan.value_bytes,
        "done": found.done,
        "failures": found.failures,
        "seconds": round(found.seconds, 4),
        "per_s": round(found.per_s, 1),
        "latency_ms": found.latencies_ms(),
        "keys_left": left[0].shape() if left else None,
    }


async def run_plan(
    session: CliSession, plan: BenchPlan, clients: list[Client], progress: RequestProgress, left: list[KeysLeft]
) -> Figures:
    """Measures with the open connections in `clients`. `left` gets an entry if the keys could not be deleted.

    Raises the error of the first refused request."""
    client = clients[0]
    prefix = f"/palisade-bench/{secrets.token_hex(8)}/".encode()
    value = bytes(plan.value_bytes)
    try:
        if plan.what == "get":
            await fill(client, prefix, min(plan.keys, plan.total), value, progress)
            return await drive(session, plan, reading(plan), prefix, clients, progress)
        return await drive(session, plan, lambda each, key: each.put(key, value), prefix, clients, progress)
    finally:
        progress.begin("deleting its keys")
        await clean_up(client, prefix, left)


async def fill(client: Client, prefix: bytes, count: int, value: bytes, progress: RequestProgress) -> None:
    """Write the keys that the benchmark reads."""
    progress.begin("writing its keys", count)
    items = ((key_of(prefix, number), value) for number in range(count))
    await client.put_many(items, outstanding=FILLING, progress=lambda done: progress.count(done, count))


async def clean_up(client: Client, prefix: bytes, left: list[KeysLeft]) -> None:
    """Called also after Ctrl-C and after a refusal."""
    try:
        await client.delete(prefix, prefix=True)
    except Exception as error:
        if failure_of(error, ()) is None:
            raise
        left.append(KeysLeft(prefix.decode(), " ".join(str(error).split())))


def reading(plan: BenchPlan) -> Request:
    return lambda client, key: client.get(key, serializable=plan.serializable)


def key_of(prefix: bytes, number: int) -> bytes:
    return prefix + b"%08d" % number


async def drive(
    session: CliSession,
    plan: BenchPlan,
    request: Request,
    prefix: bytes,
    clients: list[Client],
    progress: RequestProgress,
) -> Figures:
    from palisade.client import OutcomeUnknown, Unavailable
    from palisade.wire.error_codes import refusal_of

    latencies: list[float] = []
    failures: dict[str, int] = {}
    numbers: Iterator[int] = iter(range(plan.total))

    async def work(client: Client) -> None:
        for number in numbers:
            began = time.perf_counter()
            try:
                await request(client, key_of(prefix, number % plan.keys))
            except (OutcomeUnknown, Unavailable) as error:
                code = refusal_of(error).code
                failures[code] = failures.get(code, 0) + 1
                progress.fail()
                continue
            latencies.append(time.perf_counter() - began)
            progress.count(len(latencies), plan.total)

    progress.begin("connecting")
    async with connected(session, plan.connections, clients) as opened:
        progress.begin("", plan.total)
        began = time.perf_counter()
        try:
            async with asyncio.TaskGroup() as group:
                for number in range(plan.clients):
                    group.create_task(work(opened[number % len(opened)]))
        except ExceptionGroup as refused:
            raise refused.exceptions[0] from None
        return figures(time.perf_counter() - began, latencies, failures)


@contextlib.asynccontextmanager
async def connected(session: CliSession, number: int, clients: list[Client]) -> AsyncIterator[list[Client]]:
    from palisade.client import Client

    unreached: dict[str, str] = {}
    endpoints = await session.checked_endpoints(unreached)
    async with contextlib.AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(Client(endpoints, timeout_s=session.deadline_s, credentials=session.shown))
            for _ in range(number)
        ]
        clients += opened
        for client in opened:
            client.add_unreached(unreached)
        try:
            await asyncio.gather(*(client.status() for client in opened))
            yield opened
        finally:
            del clients[-number:]
