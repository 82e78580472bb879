"""palisade init."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.cli.credentials import node_credentials, shown
from palisade.cli.initialized_members import until_listening
from palisade.cli.numbers import Number
from palisade.cli.options import read_address
from palisade.cli.session import REFUSED, UNAVAILABLE, CliSession, Failure
from palisade.cli.target import VARIABLE, find_target
from palisade.wire.credentials import StoredToken, header_of

AGAIN_S = 0.2
LEFT_S_MIN = 0.1
LATE_S = 1.0
"""How long after its own timeout a request is cancelled if it has not ended by itself."""
NO_ANSWER = 0


@click.command()
@click.argument("members", nargs=-1, required=True)
@click.option(
    "--at",
    type=read_address,
    metavar="HOST:PORT",
    help="HTTP address of one of the nodes.  [default: node 1 of .palisade, else 127.0.0.1:7401]",
)
@click.option(
    "--cancel", is_flag=True, help="Abort an initialization that has not committed yet; shows the result at each node."
)
@click.option(
    "--timeout",
    "deadline_s",
    type=Number(0.01, 3600),
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time to wait for the nodes.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init(members: tuple[str, ...], at: str | None, cancel: bool, deadline_s: float, as_json: bool) -> None:
    """Create a cluster from the nodes MEMBERS.

    The nodes must have been started without --initial-cluster and --join. The command returns once they answer as
    members. If some do not answer before --timeout, the cluster is initialized nevertheless, and stderr names them.

    They find each other by --seeds. The command is idempotent, resumes an interrupted initialization, and waits for the
    nodes until --timeout. If the nodes require users to sign in, set PALISADE_JOIN_TOKEN to the token of the nodes.

    --cancel prints the result at each node. If one did not answer, the exit code is 3: repeat the command when that
    node is back.

    \b
    palisade init n1 n2 n3 --at 127.0.0.1:7401
    """
    check_names(members)
    session = CliSession([], deadline_s, as_json)
    body = {"members": list(members), "cancel": cancel, "attempt": secrets.token_hex(8)}
    address = at or default_address()
    status, found = asyncio.run(run(session, address, body))
    if status == 200 and cancel:
        show_cancelled(session, found)
        return
    if status == 200:
        session.answer(found, f"initialized: {', '.join(found['members'])}")
        if found.get("silent"):
            text = f"these members do not answer yet: {', '.join(found['silent'].values())}"
            session.note(f"{text}; 'palisade status' shows which nodes answer")
        return
    refused, detail = 400 <= status < 500, found["detail"]
    if status == 401:
        detail = f"{detail}. Set PALISADE_JOIN_TOKEN to the join token of the nodes"
    session.fail(Failure(REFUSED if refused else UNAVAILABLE, found["code"], detail, not refused))


def check_names(members: Sequence[str]) -> None:
    """Raises click.UsageError."""
    from palisade.base.errors import ConfigError
    from palisade.base.identifier import check_id

    twice = sorted({name for name in members if members.count(name) > 1})
    if twice:
        raise click.UsageError(f"{', '.join(twice)}: named twice in MEMBERS; name each node once")
    try:
        for name in members:
            check_id("MEMBERS", name)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


def show_cancelled(session: CliSession, found: dict[str, Any]) -> None:
    """The outcome at each node. Fails if one did not answer."""
    from palisade.topology.initialization import CancelOutcome

    earlier_version = dict.fromkeys(found["members"], CancelOutcome.CANCELLED)
    nodes = {name: CancelOutcome(outcome) for name, outcome in found.get("nodes", earlier_version).items()}
    texts = {
        CancelOutcome.CANCELLED: "cancelled",
        CancelOutcome.NOT_PREPARED: "was not prepared",
        CancelOutcome.OTHER_PLAN: "has prepared the initialization of other members, which stays",
        CancelOutcome.NO_ANSWER: "did not answer",
    }
    session.answer(found, "\n".join(f"{name}: {texts[outcome]}" for name, outcome in nodes.items()))
    silent = ", ".join(name for name, outcome in nodes.items() if outcome is CancelOutcome.NO_ANSWER)
    if silent:
        text = f"no answer from {silent}: a node that has prepared the initialization stays prepared and refuses others"
        session.fail(Failure(UNAVAILABLE, "not-cancelled", f"{text}. Repeat the command when it is back", True))


async def run(session: CliSession, at: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """`initialize`, then `until_listening`, with a line on stderr while the command waits. A response of 200 has
    `silent` if members do not answer yet."""
    members = ", ".join(body["members"])
    what = "cancel the initialization of" if body.get("cancel") else "create a cluster of"
    waits_for = [f"no answer yet from {at} to the request to {what} {members}"]
    silent: dict[str, str] = {}
    until = time.monotonic() + session.deadline_s

    def why() -> str:
        return f"initialized; no answer yet from {', '.join(silent.values())}" if silent else waits_for[-1]

    async with session.notice(why):
        status, found = await initialize(at, body, session.deadline_s, waits_for)
        addresses = found.pop("addresses", {})
        if status == 200 and not body.get("cancel"):
            await until_listening({name: each["http"] for name, each in addresses.items()}, until, silent)
    return status, {**found, "silent": silent} if silent else found


def default_address() -> str:
    """Raises click.UsageError if only stream addresses are known: a node without a cluster is initialized over HTTP."""
    target = find_target(None, os.environ, Path())
    if target.http is None:
        raise click.UsageError(f"give --at: {VARIABLE} has stream addresses, and init needs an HTTP address")
    return target.http


async def initialize(
    at: str, body: dict[str, Any], deadline_s: float, waits_for: list[str]
) -> tuple[int, dict[str, Any]]:
    """(status, response) of the last request; NO_ANSWER if there was no response. Requests that may succeed later are
    repeated until the deadline; `waits_for` gets the reason of each.

    A connection that is refused ends the command at once, unless the node has responded before: its HTTP port is closed
    for a moment when it becomes a member."""
    until = time.monotonic() + deadline_s
    credentials = shown()
    signed_in = None if isinstance(credentials, StoredToken) else credentials
    headers = header_of(node_credentials(os.environ) or signed_in)
    last = no_answer(NoAnswer(at, "no answer in time"))
    responded = False
    while True:
        left_s = max(until - time.monotonic(), LEFT_S_MIN)
        try:
            async with asyncio.timeout(left_s + LATE_S), HttpRequests(headers, timeout_s=left_s) as requests:
                status, found = last = await ask(requests, at, {**body, "timeout_ms": int(left_s * 1000)})
        except TimeoutError:
            return last
        except NoAnswer as error:
            if responded and error.silent_s is not None:
                return last
            status, found = last = no_answer(error)
        responded = responded or status != NO_ANSWER
        if 200 <= status < 500 or not responded or time.monotonic() + AGAIN_S >= until:
            return last
        waits_for.append(str(found["detail"]))
        await asyncio.sleep(AGAIN_S)


def no_answer(error: NoAnswer) -> tuple[int, dict[str, Any]]:
    busy = "the node there may be frozen or busy: retry, or give another --at"
    hint = busy if error.silent_s is not None else "start the node, or give another --at"
    return NO_ANSWER, {"code": "unavailable", "detail": f"{error}; {hint}"}


async def ask(requests: HttpRequests, at: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(status, response). Raises NoAnswer."""
    answer = await requests.json(at, "/v1/cluster/init", "POST", body)
    if answer.status == 200:
        return answer.status, answer.content
    return answer.status, {"code": "unavailable", "detail": str(answer.content), **answer.content}
