"""palisade status."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from palisade.base.http_request import NoAnswer
from palisade.cli.credentials import shown
from palisade.cli.http_request import RequestRefused, run_or_fail
from palisade.cli.http_request import ask as ask_http
from palisade.cli.options import at_option, client_options
from palisade.cli.printing import print_json
from palisade.cli.session import NO_STREAM, UNAVAILABLE, CliSession, Failure, failure_of

if TYPE_CHECKING:
    from palisade.client import Client

T = TypeVar("T")

ASK_S = 2.0


@click.command()
@at_option
@client_options
def status(session: CliSession, at: str | None) -> None:
    """One line per node: role, term, revisions (LM newest, MM oldest readable), commit and applied index, URL.

    Nodes that follow the cluster without being members are among them, with the revision of their vault; --at asks one
    such node alone. Exit code 3 if no node answers.
    """
    from palisade.service.status import cells, refusals_of, status_table, waits_of

    if at is None:
        rows = known_or_fail(session, ask_all(session.endpoints, min(ASK_S, session.deadline_s)))
    else:
        rows = [run_or_fail(session, row_at(at))]
    if not any(row["role"] for row in rows):
        nobody = f"no node answers at {', '.join(session.endpoints)}"
        text = f"{nobody}; start one with 'palisade up', or give --endpoints. {NO_STREAM}"
        session.fail(Failure(UNAVAILABLE, "unreachable", text, True))
    if session.as_json:
        print_json({"nodes": rows})
    elif sys.stdout.isatty():
        from rich.console import Console

        Console().print(status_table(rows))
    else:
        for row in rows:
            print("\t".join(cells(row)))
    for line in () if session.as_json else (*refusals_of(rows), *waits_of(rows)):
        print(line, file=sys.stderr)


def known_or_fail(session: CliSession, asking: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns; a node that wants to know who asks ends the process."""
    from palisade.wire.auth_errors import AuthorizationError

    try:
        return asyncio.run(asking)
    except AuthorizationError as error:
        failure = failure_of(error, [])
        if failure is None:
            raise
        session.fail(failure)


async def ask_all(endpoints: list[str], timeout_s: float) -> list[dict[str, Any]]:
    """A row per node: of those asked, and of the members that they know and that were not asked yet."""
    answers = dict(zip(endpoints, await asyncio.gather(*(ask(each, timeout_s) for each in endpoints)), strict=True))
    more = sorted(streams_of(answers.values()).keys() - answers.keys())
    answers.update(zip(more, await asyncio.gather(*(ask(each, timeout_s) for each in more)), strict=True))
    up = next((endpoint for endpoint, answer in answers.items() if answer is not None), None)
    known = await followers_known_at(up, timeout_s) if up is not None else {}
    followers = await asyncio.gather(*(follower_row(name, http, timeout_s) for name, http in known.items()))
    return [*rows_of(answers), *followers]


async def row_at(at: str) -> dict[str, Any]:
    """Raises NoAnswer, Refused."""
    from palisade.service.status import row_of

    return row_of(await ask_http(at, "/v1/status"), f"http://{at}")


def own_client(endpoint: str) -> Client:
    from palisade.client import Client

    return Client([endpoint], follow_leader=False, credentials=shown())


async def followers_known_at(endpoint: str, timeout_s: float) -> dict[str, str]:
    """Name -> HTTP address of the nodes in the logical topology that are no members of the group."""
    from palisade.metastore.errors import MetastoreError
    from palisade.raftgroup.errors import RaftError

    try:
        async with asyncio.timeout(timeout_s), own_client(endpoint) as client:
            rows = (await client.topology())["logical"]
    except (OSError, TimeoutError, MetastoreError, RaftError):
        return {}
    return {row["id"]: row["addresses"].get("http", "") for row in rows if row["role"] == "follower"}


async def follower_row(name: str, http: str, timeout_s: float) -> dict[str, Any]:
    from palisade.service.status import row_of, silent_row

    url = f"http://{http}" if http else None
    try:
        return row_of(await ask_http(http, "/v1/status", timeout_s=timeout_s), url)
    except (NoAnswer, RequestRefused):
        return silent_row(name, url)


async def ask(endpoint: str, timeout_s: float) -> Mapping[str, Any] | None:
    """What one node says of itself; None if it does not answer."""
    from palisade.metastore.errors import MetastoreError
    from palisade.raftgroup.errors import RaftError

    try:
        async with asyncio.timeout(timeout_s), own_client(endpoint) as client:
            said: Mapping[str, Any] = await client.status()
            return said
    except (OSError, TimeoutError, MetastoreError, RaftError):
        return None


def streams_of(answers: Iterable[Mapping[str, Any] | None]) -> dict[str, tuple[str, str | None]]:
    """Stream address -> (member, its HTTP URL), of every member that one of them knows."""
    found: dict[str, tuple[str, str | None]] = {}
    for answer in answers:
        for member in answer["members"] if answer else ():
            addresses = member["addresses"]
            if "stream" in addresses:
                http = addresses.get("http")
                found[addresses["stream"]] = (member["id"], f"http://{http}" if http else None)
    return found


def rows_of(answers: Mapping[str, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Sorted by name; an endpoint that is silent and no member's is left out if another one answers."""
    from palisade.service.status import row_of, silent_row

    known = streams_of(answers.values())
    rows = []
    for endpoint, answer in answers.items():
        node, url = known.get(endpoint, (None, None))
        if answer is not None:
            rows.append(row_of(answer, url))
        elif node is not None:
            rows.append(silent_row(node, url))
    return sorted(rows, key=lambda row: str(row["id"]))
