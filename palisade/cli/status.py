"""palisade status."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from palisade.base.http_request import NoAnswer
from palisade.base.network_reason import NO_ANSWER, reason_of
from palisade.cli.credentials import shown
from palisade.cli.http_request import RequestRefused, run_or_fail
from palisade.cli.http_request import ask as ask_http
from palisade.cli.options import at_option, client_options
from palisade.cli.session import REFUSED_CONNECTION, SILENT, CliSession, no_answer
from palisade.cli.waiting import late

if TYPE_CHECKING:
    from palisade.client import Client
    from palisade.wire.error_codes import WrongPort

ASK_S = 2.0
AGAIN_S = 0.2


@click.command()
@at_option
@client_options
def status(session: CliSession, at: str | None) -> None:
    """Show role, readiness and revisions of every node.

    It also shows HTTP address, fence, term and indexes. LM is the newest revision, MM the oldest readable one, LV that
    of the vault, RR the newest released one; the leader is marked with *. A node is ready if /readyz returns 200. Its
    vault may still be fenced: then a line below the table gives the cause.

    On a narrow terminal the less important columns are omitted, and named below the table; -o csv and --json have all
    of them. Nodes that follow the cluster without being members are included; --at queries one such node alone. Exit
    code 3 if no node answers.
    """
    from palisade.service.status import (
        cells,
        clusters_of,
        fenced_of,
        leaderless_of,
        plain_cells,
        refusals_of,
        titles,
        waits_of,
    )

    reasons: dict[str, str] = {}
    if at is None:
        rows = session.run(rows_from(session, reasons))
    else:
        rows = [run_or_fail(session, row_at(at, session.deadline_s), at)]
    if not any(row["role"] for row in rows):
        show_addresses(session, reasons)
        session.unreachable(reasons)
    if sys.stdout.isatty() and not (session.as_json or session.as_csv):
        from rich.console import Console

        from palisade.cli.status_table import status_table

        console = Console()
        for line in clusters_of(rows):
            console.print(line, markup=False, highlight=False)
        console.print(status_table(rows, console.width))
    else:
        session.rows({"nodes": rows}, titles(), [plain_cells(row) if session.as_csv else cells(row) for row in rows])
    lines = (*leaderless_of(rows), *refusals_of(rows), *fenced_of(rows), *waits_of(rows))
    for line in () if session.as_json else lines:
        print(line, file=sys.stderr)


def show_addresses(session: CliSession, reasons: Mapping[str, str]) -> None:
    """A row per address if a node runs that cannot give its status: it could not verify the user without its cluster,
    and a status is for signed-in users only. Without --json the command then ends without the same reasons again.

    `reasons`: why, by address."""
    from palisade.service.status import silent_row

    failure = no_answer(reasons)
    if failure is None:
        return
    found = [(at, reasons.get(at, NO_ANSWER)) for at in session.endpoints]
    answers = {at: reason not in {*SILENT, NO_ANSWER} for at, reason in found}
    shape = [{**silent_row(None, None), "endpoint": at, "answers": answers[at], "reason": why} for at, why in found]
    rows = [(at, "yes" if answers[at] else "no", why) for at, why in found]
    session.rows({"nodes": shape}, ("address", "answers", "reason"), rows, wraps=("reason",))
    if not session.as_json:
        session.fail(replace(failure, message="no node can give its status; the output has the reasons"))


async def rows_from(session: CliSession, reasons: dict[str, str]) -> list[dict[str, Any]]:
    """A row per node. All nodes are asked again until the deadline while no node answers but `palisade up` runs. The
    same applies, as long as at least `AGAIN_S + ASK_S` remain, while nodes are late, or run and cannot verify the user
    yet, which takes a few seconds after their start.

    `reasons`: as in `ask`. Raises AuthorizationError, OtherCluster, WrongPort, OSError."""
    from palisade.wire.error_codes import NOT_INITIALIZED

    silent: dict[str, float] = {}
    unchecked: dict[str, str] = {}
    wrong: list[WrongPort] = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    until = began + session.deadline_s
    starting = False

    def waits_for() -> str | None:
        asked = {**dict.fromkeys(unchecked, began), **silent}
        found = session.endpoints if starting else late(asked, loop.time())
        return f"no answer yet from {', '.join(found)}" if found else None

    async with session.notice(waits_for):
        endpoints = await session.checked_endpoints(unchecked)
        reasons.update(unchecked)
        silent.update({at: began for at, reason in unchecked.items() if reason != REFUSED_CONNECTION})
        unchecked.clear()
        while True:
            rows = await ask_all(endpoints, until - loop.time(), silent, wrong, reasons)
            answered = wrong or any(row["role"] for row in rows)
            starting = session.up_runs and not answered and no_answer(reasons) is None
            settled = {REFUSED_CONNECTION, NOT_INITIALIZED}.issuperset(reasons.values())
            final = answered or (settled and not starting)
            if final or loop.time() + AGAIN_S + (0.0 if starting else ASK_S) > until:
                break
            await asyncio.sleep(AGAIN_S)
    if wrong and not any(row["role"] for row in rows):
        raise wrong[0]
    return rows


async def ask_all(
    endpoints: Sequence[str],
    deadline_s: float,
    silent: dict[str, float] | None = None,
    wrong: list[WrongPort] | None = None,
    reasons: dict[str, str] | None = None,
) -> list[dict[str, Any]]:
    """A row per node: the addressed nodes, and the other nodes that they know. Each request has `ASK_S`, all together
    have `deadline_s`. Nodes that an answer names are asked at once, while other requests are still waiting.

    `silent` has the addresses whose requests have not ended, and when each was asked first. `wrong`, `reasons`: as in
    `ask`."""
    silent = {} if silent is None else silent
    loop = asyncio.get_running_loop()
    until = loop.time() + deadline_s
    answers: dict[str, Mapping[str, Any] | None] = {}
    asked: dict[str, asyncio.Task[Mapping[str, Any] | None]] = {}
    followers: asyncio.Task[list[dict[str, Any]]] | None = None

    def begin(addresses: Iterable[str]) -> None:
        for address in addresses:
            silent.setdefault(address, loop.time())
            request = ask(address, min(ASK_S, until - loop.time()), wrong, reasons)
            asked[address] = asyncio.ensure_future(request)

    begin(endpoints)
    try:
        while asked:
            await asyncio.wait(asked.values(), return_when=asyncio.FIRST_COMPLETED)
            for address in [each for each, request in asked.items() if request.done()]:
                answer = answers[address] = asked.pop(address).result()
                silent.pop(address, None)
                if answer is None:
                    continue
                begin(sorted(streams_of([answer]).keys() - answers.keys() - asked.keys()))
                followers = followers or asyncio.ensure_future(follower_rows(address, until, silent))
        return [*rows_of(answers), *(await followers if followers is not None else ())]
    finally:
        left = [*asked.values(), *([followers] if followers is not None else [])]
        for request in left:
            request.cancel()
        await asyncio.gather(*left, return_exceptions=True)


async def follower_rows(endpoint: str, until: float, silent: dict[str, float]) -> list[dict[str, Any]]:
    """The nodes that are not members, as the node at `endpoint` knows them. `until`: in the time of the event loop.
    `silent`: as in `ask_all`."""
    loop = asyncio.get_running_loop()
    known = await followers_known_at(endpoint, min(ASK_S, until - loop.time()))
    left_s = min(ASK_S, until - loop.time())

    async def row(name: str, http: str) -> dict[str, Any]:
        silent[http or name] = loop.time()
        found = await follower_row(name, http, left_s)
        del silent[http or name]
        return found

    return list(await asyncio.gather(*(row(name, http) for name, http in known.items())))


async def row_at(at: str, timeout_s: float) -> dict[str, Any]:
    """Raises NoAnswer, RequestRefused, OtherCluster."""
    from palisade.service.status import row_of

    return row_of(await ask_http(at, "/v1/status", timeout_s=timeout_s), f"http://{at}")


def own_client(endpoint: str) -> Client:
    from palisade.client import Client

    return Client([endpoint], follow_leader=False, credentials=shown(), wait_for_nodes=False)


async def followers_known_at(endpoint: str, timeout_s: float) -> dict[str, str]:
    """Name -> HTTP address of the nodes in the logical topology that are not members of the group."""
    from palisade.metastore.errors import MetastoreError
    from palisade.raftgroup.errors import RaftError

    try:
        async with asyncio.timeout(timeout_s), own_client(endpoint) as client:
            rows = (await client.topology())["logical"]
    except (OSError, TimeoutError, MetastoreError, RaftError):
        return {}
    return {row["id"]: row["addresses"].get("http", "") for row in rows if row["role"] == "follower"}


async def follower_row(name: str, http: str, timeout_s: float) -> dict[str, Any]:
    from palisade.cli.cluster_check import OtherCluster
    from palisade.service.status import row_of, silent_row

    url = f"http://{http}" if http else None
    try:
        return row_of(await ask_http(http, "/v1/status", timeout_s=timeout_s), url)
    except (NoAnswer, RequestRefused, OtherCluster):
        return silent_row(name, url)


async def ask(
    endpoint: str, timeout_s: float, wrong: list[WrongPort] | None = None, reasons: dict[str, str] | None = None
) -> Mapping[str, Any] | None:
    """The status of one node; None if it does not answer. `wrong` gets the error if the port is no stream port,
    `reasons` why another one gave no answer."""
    from palisade.metastore.errors import MetastoreError
    from palisade.raftgroup.errors import RaftError
    from palisade.wire.error_codes import WrongPort

    client = own_client(endpoint)
    try:
        async with asyncio.timeout(timeout_s), client:
            found: Mapping[str, Any] = await client.status()
            return found
    except WrongPort as error:
        if wrong is not None:
            wrong.append(error)
        return None
    except (OSError, TimeoutError, MetastoreError, RaftError) as error:
        if reasons is not None:
            reasons[endpoint] = client.why_unconnected(endpoint) or reason_of(error)
        return None


def streams_of(answers: Iterable[Mapping[str, Any] | None]) -> dict[str, tuple[str, str | None]]:
    """Stream address -> (member, its HTTP URL), for every member in one of the answers."""
    found: dict[str, tuple[str, str | None]] = {}
    for answer in answers:
        for member in answer["members"] if answer else ():
            addresses = member["addresses"]
            if "stream" in addresses:
                http = addresses.get("http")
                found[addresses["stream"]] = (member["id"], f"http://{http}" if http else None)
    return found


def rows_of(answers: Mapping[str, Mapping[str, Any] | None]) -> list[dict[str, Any]]:
    """Sorted by name. An endpoint that does not answer and belongs to no member is omitted if another one answers."""
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
