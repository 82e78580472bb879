"""palisade login."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import Any

import click

from palisade.base.durable_files import publish, sync_file
from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.base.network_reason import NO_ANSWER, reason_of
from palisade.base.new_file import why_not_made
from palisade.cli.cluster_check import ASK_S, answers_of, cluster_at_stream
from palisade.cli.credentials import password_of, prompts_for_password, token_file_text
from palisade.cli.given_path import GivenPath
from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import NAME, cluster_options, read_address
from palisade.cli.session import REFUSED, CliSession, Failure
from palisade.wire.credentials import Password

HOUR_S, DAY_S = 3600, 86_400


@click.command()
@click.option("--user", required=True, type=NAME, envvar="PALISADE_USER", help="User name (or PALISADE_USER).")
@click.option(
    "--token-file",
    type=GivenPath(dir_okay=False),
    metavar="FILE",
    help="Write the token and the ID of the cluster to FILE; otherwise the token is printed.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=WholeNumber(1, DAY_S),
    default=HOUR_S,
    show_default=True,
    metavar="SECONDS",
    help="Lifetime of the token.",
)
@click.option("--at", type=read_address, metavar="HOST:PORT", help="Ask the member with this HTTP address.")
@cluster_options
def login(session: CliSession, user: str, token_file: str | None, ttl_s: int, at: str | None) -> None:
    """Get a token for a user and its password. Other commands use it with --token-file, at any node of the cluster.

    The password comes from PALISADE_PASSWORD, from the file PALISADE_PASSWORD_FILE, or from a prompt. A token in a file
    is sent only to the cluster that issued it.
    """
    reason = None if token_file is None else why_not_made(Path(token_file), overwrite=True)
    if reason is not None:
        session.fail(Failure(REFUSED, "not-written", reason, False))
    if prompts_for_password(os.environ) and not session.up_runs:
        require_a_node(session, at)
    shown = Password(user, password_of(user, os.environ))
    addresses = [at] if at is not None else member_addresses(session, shown)
    body = {"user": shown.user, "password": shown.password, "ttl_s": ttl_s}
    found: dict[str, Any] = run_or_fail(session, sign_in(addresses, body, session.deadline_s), ", ".join(addresses))
    if token_file is None:
        session.answer(found, found["token"])
        return
    try:
        write_private(Path(token_file), token_file_text(found["token"], found.get("cluster_id", "")))
    except OSError as error:
        session.fail(Failure(REFUSED, "not-written", f"signed in, but {not_writable(token_file, error)}", False))
    shape = {name: found[name] for name in ("user", "expires_ms", "cluster_id") if name in found}
    session.answer({**shape, "token_file": token_file}, f"signed in as {user} for {ttl_s} s: --token-file {token_file}")


def require_a_node(session: CliSession, at: str | None) -> None:
    """Fails if no node answers, before the user types a password. The requests have no credentials."""
    ask_s = min(ASK_S, session.deadline_s)

    async def reach_http(address: str) -> None:
        async with HttpRequests(timeout_s=ask_s) as requests:
            await requests.json(address, "/v1/login")

    async def reach_streams(silent: dict[str, str]) -> list[str | BaseException]:
        async with session.notice_of_check(silent):
            return await answers_of([asyncio.wait_for(cluster_at_stream(each), ask_s) for each in session.endpoints])

    if at is not None:
        run_or_fail(session, reach_http(at), at)
        return
    answers = session.run(reach_streams(dict.fromkeys(session.endpoints, NO_ANSWER)))
    reasons = {
        each: reason_of(answer)
        for each, answer in zip(session.endpoints, answers, strict=True)
        if isinstance(answer, OSError)
    }
    if len(reasons) == len(answers):
        session.unreachable(reasons)


def not_writable(path: str, error: OSError) -> str:
    return f"{path} can't be written: {reason_of(error)}; make it writable, or give another file"


def member_addresses(session: CliSession, shown: Password) -> list[str]:
    """The HTTP addresses of the members, as a node of the cluster lists them; that of this node comes first."""

    async def members(client: Any) -> tuple[object, list[dict[str, Any]]]:
        return (await client.status())["member"], await client.members()

    answers, rows = session.with_credentials(shown).call(members)
    rows.sort(key=lambda each: (each["id"] != answers, not each["leader"]))
    return [each["addresses"]["http"] for each in rows if "http" in each["addresses"]]


async def sign_in(addresses: list[str], body: dict[str, Any], deadline_s: float) -> Any:
    """The response of the first node that answers. Each node has half of the remaining time, the last one all of it.

    Raises NoAnswer, RequestRefused."""
    until = time.monotonic() + deadline_s
    failed = NoAnswer("any member", "no member has an HTTP address")
    for address in addresses:
        left_s = max(until - time.monotonic(), 0.01)
        timeout_s = left_s if address == addresses[-1] else left_s / 2
        try:
            return await ask(address, "/v1/login", "POST", body, timeout_s=timeout_s, anonymous=True)
        except NoAnswer as error:
            failed = error
    raise failed


def write_private(path: Path, text: str) -> None:
    """Writes a file that only the owner can read, also while it is written; durable on return."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text.encode())
        sync_file(file)
    publish(temporary, path)
