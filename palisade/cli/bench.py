"""palisade bench: throughput and latency of the cluster, measured from this machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from palisade.cli.bench_run import BenchPlan, BenchRun, KeysLeft
from palisade.cli.bench_statistics import Figures
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import client_options, serializable_option
from palisade.cli.session import INTERRUPTED, UNAVAILABLE, CliSession, Failure, failure_of
from palisade.cli.stop_signals import Stopped, stoppable

if TYPE_CHECKING:
    from palisade.client import Client

CLIENTS_MAX = 1000
OUTSTANDING_MAX = 2000
TOTAL_MAX = 10_000_000
VALUE_BYTES_MAX = 1024 * 1024
KEYS_MAX = 1_000_000

Command = Callable[..., None]


@click.group()
def bench() -> None:
    """Measure throughput and latencies from this machine.

    The benchmark makes its own keys and deletes them afterwards. This process generates the whole load; if it runs on a
    machine of the cluster, the figures include its CPU time. If no request succeeds within --timeout, it ends with exit
    code 3.
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
@serializable_option
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


def measure(session: CliSession, plan: BenchPlan) -> None:
    bench = BenchRun(session, plan)

    async def run(client: Client) -> None:
        async with session.notice_of(client):
            await client.status()
        try:
            async with session.shown_progress(bench.progress):
                await bench.run(client)
        except Exception as error:
            failure = failure_of(error, session.endpoints, session.source)
            if failure is None or bench.left is None:
                raise
            session.fail(with_keys(failure, bench.left, session.as_json))

    stopped_with = 0
    try:
        session.call(lambda client: stoppable(lambda: run(client)), notice=False, warns_of_writes=False)
    except Stopped as stopped:
        stopped_with = 128 + stopped.number
    except SystemExit as ended:
        if ended.code != INTERRUPTED:
            raise
        stopped_with = INTERRUPTED
    found = bench.figures()
    reason = None if found.done else why_unanswered(session, bench.unanswered)
    if bench.measures or session.as_json:
        session.rows(
            shape_of(plan, found, bench.left, stopped_with > 0, reason),
            [f"bench {plan.what}", "value"],
            rows_of(found, "" if session.as_csv else ","),
        )
    if reason is not None and not session.as_json:
        click.echo(f"palisade bench: no request succeeded: {reason}", err=True)
    if bench.left is not None and not session.as_json:
        click.echo(f"palisade bench: {bench.left.text()}", err=True)
    if stopped_with or not found.done:
        sys.exit(stopped_with or UNAVAILABLE)


def why_unanswered(session: CliSession, error: Exception | None) -> str | None:
    if error is None:
        return None
    failure = failure_of(error, session.endpoints, session.source)
    return str(error) if failure is None else failure.message


def with_keys(failure: Failure, left: KeysLeft, as_json: bool) -> Failure:
    """The failure with the keys that remain: in its object, or in its line."""
    return replace(
        failure, keys_left=left.shape(), message=failure.message if as_json else f"{failure.message}; {left.text()}"
    )


def rows_of(found: Figures, thousands: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = [("requests", f"{found.done:{thousands}}"), ("seconds", f"{found.seconds:.2f}")]
    rows += [(f"failed: {code}", f"{count:{thousands}}") for code, count in found.failures.items()]
    rows += [("requests per second", f"{found.per_s:{thousands}.0f}")]
    return rows + [(f"{name}, ms", f"{value:.2f}") for name, value in found.latencies_ms().items()]


def shape_of(
    plan: BenchPlan, found: Figures, left: KeysLeft | None, interrupted: bool, reason: str | None
) -> dict[str, Any]:
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
        "interrupted": interrupted,
        "reason": reason,
        "keys_left": left.shape() if left else None,
    }
