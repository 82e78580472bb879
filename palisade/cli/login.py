"""palisade login."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from palisade.cli.credentials import password_of
from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.options import read_address
from palisade.cli.session import CliSession
from palisade.wire.credentials import Password

HOUR_S, DAY_S = 3600, 86_400


@click.command()
@click.option("--user", required=True, envvar="PALISADE_USER", help="Who you are (or PALISADE_USER).")
@click.option(
    "--token-file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Where to write the token; else it is printed.",
)
@click.option(
    "--ttl",
    "ttl_s",
    type=click.IntRange(1, DAY_S),
    default=HOUR_S,
    show_default=True,
    metavar="SECONDS",
    help="How long it is to live.",
)
@click.option(
    "--at",
    type=read_address,
    default="127.0.0.1:7401",
    show_default=True,
    metavar="HOST:PORT",
    help="HTTP address of a member.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")  # fmt: skip
def login(user: str, token_file: str | None, ttl_s: int, at: str, as_json: bool) -> None:
    """A token for a user and its password: for --token-file of other commands, at any node, until its time is over.

    The password is that in PALISADE_PASSWORD or in PALISADE_PASSWORD_FILE; else it is asked for.
    """
    session = CliSession([], 0.0, as_json)
    shown = Password(user, password_of(user, os.environ))
    body = {"user": shown.user, "password": shown.password, "ttl_s": ttl_s}
    found: dict[str, Any] = run_or_fail(session, ask(at, "/v1/login", "POST", body, timeout_s=20.0))
    if token_file is None:
        session.answer(found, found["token"])
        return
    write_private(Path(token_file), found["token"] + "\n")
    told = {"user": found["user"], "expires_ms": found["expires_ms"], "token_file": token_file}
    session.answer(told, f"signed in as {user} for {ttl_s} s: --token-file {token_file}")


def write_private(path: Path, text: str) -> None:
    """Nobody else may read it, also while it is written."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    temporary.replace(path)
