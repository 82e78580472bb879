"""palisade journal: serve, append, read, status of a replicated journal (docs/activation.md)."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from palisade.base.address import Address, is_wildcard
from palisade.base.counted import counted
from palisade.base.wrong_port import CODE as WRONG_PORT_CODE
from palisade.cli.daemon_thread import in_daemon_thread
from palisade.cli.given_path import GivenPath
from palisade.cli.input_file import hint_at_terminal
from palisade.cli.numbers import Number, WholeNumber
from palisade.cli.options import client_options, output_options, read_address, read_bytes, read_role, read_time
from palisade.cli.printing import print_json, readable
from palisade.cli.session import REFUSED, UNAVAILABLE, UNKNOWN, CliSession, Failure, nothing_else

if TYPE_CHECKING:
    from palisade.client import Client
    from palisade.journal.client import JournalClient

BATCH_ENTRIES = 1000
BATCH_BYTES = 1 << 20
OUTSTANDING = 8
COLUMNS = ("address", "name", "state", "reason", "sequence", "agreed_sequence", "last", "acknowledged", "replica_state")

role_option = click.option(
    "--role", required=True, type=read_role, metavar="TEXT", help="Name of the role that the two copies share."
)
copies_option = click.option(
    "--copies", required=True, metavar="HOST:PORT,...", callback=lambda _c, _p, text: read_copies(text),
    help="Addresses of the copies: their --advertise, or --listen.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md.")
timeout_option = click.option(
    "--timeout", "deadline_s", type=Number(0.1, 3600), default=10.0, show_default=True, metavar="SECONDS",
    help="Longest time for one request.",
)  # fmt: skip


def read_copies(text: str) -> list[str]:
    found = [read_address(part) for part in text.split(",") if part.strip()]
    if not found:
        raise click.BadParameter("is empty; give host:port of at least one copy")
    return found


def read_time_in(text: str, least_s: float, most_s: float) -> float:
    time_s = read_time(text)
    if not least_s <= time_s <= most_s:
        raise click.BadParameter(f"{text} is not in the range {least_s:g}s to {most_s:g}s")
    return time_s


def read_advertised(listen: str, advertise: str | None) -> str:
    """The address that this copy announces."""
    address = advertise or listen
    if is_wildcard(Address.parse(address).host):
        option = "--advertise" if advertise else "--listen"
        raise click.UsageError(
            f"{option}: {address} is not reachable by the other copy; give --advertise with the name or address of "
            "this machine, and the port"
        )
    return address


@click.group()
def journal() -> None:
    """A replicated journal of two copies.

    Only the newest copy may become active."""


@journal.command()
@role_option
@click.option("--name", required=True, help="Name of this copy; the other copy needs another name.")
@click.option("--dir", "directory", required=True, type=GivenPath(path_type=Path), help="Directory of this copy.")
@click.option(
    "--listen", required=True, type=read_address, metavar="HOST:PORT", help="Address for clients and the other copy."
)
@click.option(
    "--advertise",
    type=read_address,
    metavar="HOST:PORT",
    help="Address by which clients and the other copy reach this one.  [default: --listen]",
)
@click.option("--primary/--backup", required=True, help="If the role is new, the primary becomes active first.")
@click.option("--allow-failback", is_flag=True, help="Return the role to the primary once it is in sync.")
@click.option(
    "--ttl",
    "ttl_s",
    callback=lambda _c, _p, text: read_time_in(text, 0.5, 60),
    default="1",
    show_default=True,
    metavar="SECONDS",
    help="Lease of the lock, 0.5s to 60s: the time after a crash until the other copy can take over.",
)
@click.option(
    "--replica-timeout",
    "replica_timeout_s",
    callback=lambda _c, _p, text: read_time_in(text, 0.1, 60),
    default="1",
    show_default=True,
    metavar="SECONDS",
    help="A replica that is silent for this time, 0.1s to 60s, is treated as lost. Give both copies the same value.",
)
@click.option(
    "--force-without-store",
    is_flag=True,
    help="If the metadata store does not answer for 3 s, serve without it. Only while the other copy is stopped.",
)
@click.option(
    "--metrics", type=read_address, metavar="HOST:PORT", help="Address of GET /metrics for Prometheus.  [default: off]"
)
@client_options
def serve(
    session: CliSession,
    directory: Path,
    listen: str,
    advertise: str | None,
    metrics: str | None,
    force_without_store: bool,
    **given: Any,
) -> None:
    """Run one copy until SIGTERM or Ctrl-C.

    The copy follows the active one. It becomes active once the active copy has ended and no other copy can be newer.
    Start both copies with the same --role; --endpoints are those of the metadata store.

    The port has no authentication: --listen on a loopback address or a private network. With a --listen such as
    0.0.0.0:7901, give --advertise.

    \b
    palisade journal serve --role orders --name a --dir a --primary \\
        --listen 127.0.0.1:7901
    palisade journal serve --role orders --name b --dir b --backup \\
        --listen 127.0.0.1:7902
    """
    import uvloop

    from palisade.catalog.errors import BadField
    from palisade.catalog.row_format import a_name
    from palisade.cli.activation_copies import operator_now
    from palisade.journal.agreed import LockHolder
    from palisade.journal.copy_state import CopyOptions
    from palisade.journal.serving import serve as run

    try:
        own = LockHolder(a_name(given.pop("name"), "--name"), read_advertised(listen, advertise))
        by = operator_now() if force_without_store else None
        options = CopyOptions(given.pop("role"), own, forced_by=by, **given)
    except BadField as error:
        raise click.UsageError(str(error)) from None
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    logging.getLogger("palisade").setLevel(logging.INFO)
    call = partial(
        session.call, notice=False, warns_of_writes=False, waits_for_nodes=True, loop_factory=uvloop.new_event_loop
    )

    def serving(client: Client) -> Coroutine[Any, Any, None]:
        return run(client, options, directory, listen, metrics, lambda: client.trouble)

    with_errors(session.as_json, lambda: call(serving))


@journal.command()
@click.argument("entries", nargs=-1, type=read_bytes)
@role_option
@copies_option
@timeout_option
@json_option
def append(entries: tuple[bytes, ...], role: str, copies: list[str], deadline_s: float, as_json: bool) -> None:
    """Append ENTRIES, or the lines of stdin.

    The command prints the numbers of the first and the last entry. Lines are sent in batches; entries of one call have
    consecutive numbers unless other clients append meanwhile. After exit code 4 the last batches may have been
    appended.

    \b
    palisade journal append --role orders \\
        --copies 127.0.0.1:7901,127.0.0.1:7902 "order 1" "order 2"
    """

    if not entries:
        hint_at_terminal("entries, one on each line,")

    async def work(client: JournalClient, _: Callable[[], None]) -> tuple[int, int, int]:
        first = last = count = 0
        async for begin, end in appended(client, iter(entries) if entries else lines()):
            first, last, count = first or begin, end, count + end - begin + 1
        return first, last, count

    first, last, count = ask(role, copies, deadline_s, as_json, work)
    if as_json:
        print_json({"first": first, "last": last, "entries": count})
    elif count:
        print(f"{counted(count, 'entry')}\t{first} to {last}")
    else:
        print("nothing to append: no ENTRIES and no lines on stdin")


async def appended(client: JournalClient, contents: Iterator[bytes]) -> AsyncIterator[tuple[int, int]]:
    """The numbers of each batch, in order; up to `OUTSTANDING` batches are in flight. Contents are read in a thread: a
    read from a terminal or a pipe may block, and must not delay Ctrl-C."""
    waiting: list[asyncio.Task[tuple[int, int]]] = []
    unread = batches(contents)
    while (batch := await in_daemon_thread(lambda: next(unread, None))) is not None:
        waiting.append(asyncio.ensure_future(client.append_many(batch)))
        await asyncio.sleep(0)
        if len(waiting) >= OUTSTANDING:
            yield await waiting.pop(0)
    for each in waiting:
        yield await each


def batches(contents: Iterator[bytes]) -> Iterator[list[bytes]]:
    batch: list[bytes] = []
    size = 0
    for content in contents:
        if batch and (len(batch) >= BATCH_ENTRIES or size + len(content) > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(content)
        size += len(content)
    if batch:
        yield batch


def lines() -> Iterator[bytes]:
    return (line.rstrip(b"\n") for line in sys.stdin.buffer)


@journal.command()
@role_option
@copies_option
@click.option("--from", "first", type=WholeNumber(1), default=1, show_default=True, help="First number.")
@click.option("--limit", type=WholeNumber(1), help="Number of entries.  [default: all]")
@timeout_option
@json_option
def read(role: str, copies: list[str], first: int, limit: int | None, deadline_s: float, as_json: bool) -> None:
    """Print the acknowledged entries of the active copy."""

    async def work(client: JournalClient, erase: Callable[[], None]) -> None:
        left = limit
        async for number, content in client.entries(first):
            if left is not None and (left := left - 1) < 0:
                return
            text = readable(content)
            erase()
            if as_json:
                print_json({"number": number, "content": text})
            else:
                print(f"{number}\t{text}")

    ask(role, copies, deadline_s, as_json, work)


@journal.command()
@role_option
@copies_option
@timeout_option
@output_options
def status(session: CliSession, role: str, copies: list[str], deadline_s: float) -> None:
    """Show the state and sequences of each copy.

    Exit code 3: nothing answers at these addresses. Exit code 1: no copy of the role answers, but a copy of another
    role or another server does.
    """
    from palisade.journal.client import NO_STATUS, WRONG_PORT

    silent = set[str]()

    def waits_for() -> str | None:
        return f"no answer yet from {', '.join(each for each in copies if each in silent)}" if silent else None

    found = ask(role, copies, deadline_s, session.as_json, lambda client, _: client.status(silent), waits_for)
    cells = [["-" if row.get(name) in (None, "") else str(row[name]) for name in COLUMNS] for row in found]
    session.rows({"copies": found}, COLUMNS, cells, wraps=["reason"])
    if all(row["state"] in NO_STATUS for row in found):
        sys.stdout.flush()
        reasons = "; ".join(f"{row['address']}: {row['reason']}" for row in found)
        text = f"no copy of role {role} answers ({reasons}); start one with 'palisade journal serve'"
        if any(row["state"] == WRONG_PORT for row in found):
            session.fail(Failure(REFUSED, WRONG_PORT_CODE, text, False))
        session.fail(Failure(UNAVAILABLE, "unreachable", text, True))


def ask(
    role: str,
    copies: list[str],
    deadline_s: float,
    as_json: bool,
    work: Callable[[JournalClient, Callable[[], None]], Coroutine[Any, Any, Any]],
    otherwise: Callable[[], str | None] = nothing_else,
) -> Any:
    """The result of `work`. Meanwhile stderr shows the trouble of the client, else what `otherwise` returns. `work`
    also gets the function that erases this notice before other output."""
    from palisade.journal.client import JournalClient

    async def run() -> Any:
        client = JournalClient(role, copies, timeout_s=deadline_s)
        async with client, session.notice(lambda: client.trouble or otherwise()) as erase:
            return await work(client, erase)

    session = CliSession(copies, deadline_s, as_json)
    return with_errors(as_json, lambda: session.run(run()))


def with_errors(as_json: bool, work: Callable[[], Any]) -> Any:
    """Every error of the journal ends the process with its exit code."""
    from palisade.journal.errors import AppendUnknown, JournalError

    try:
        return work()
    except AppendUnknown as error:
        fail(as_json, UNKNOWN, error)
    except JournalError as error:
        fail(as_json, UNAVAILABLE if error.retry else REFUSED, error)


def fail(as_json: bool, exit_code: int, error: Any) -> NoReturn:
    CliSession([], 0, as_json).fail(Failure(exit_code, error.code, str(error), error.retry))
