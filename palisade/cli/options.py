"""The options that all client commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from palisade.base.address import Address, AddressError
from palisade.cli.credentials import credentials_from, keep
from palisade.cli.session import CliSession

ENDPOINTS = "127.0.0.1:7601,127.0.0.1:7602,127.0.0.1:7603"


def read_endpoints(text: str) -> list[str]:
    """'host:port,host:port' as a list, each checked."""
    try:
        found = [str(Address.parse(part.strip())) for part in text.split(",") if part.strip()]
    except AddressError as error:
        raise click.BadParameter(str(error)) from None
    if not found:
        raise click.BadParameter("is empty; give host:port of at least one node")
    return found


def read_address(text: str) -> str:
    """'host:port', checked."""
    try:
        return str(Address.parse(text.strip()))
    except AddressError as error:
        raise click.BadParameter(str(error)) from None


def read_bytes(text: str) -> bytes:
    """The bytes that were typed."""
    return text.encode("utf-8", "surrogateescape")


def read_lease(text: str) -> int:
    """A lease's number, decimal or with 0x."""
    try:
        number = int(text, 0)
    except ValueError:
        raise click.BadParameter(f"{text!r} is not the number of a lease; see 'palisade lease list'") from None
    if not 0 < number < 1 << 63:
        raise click.BadParameter(f"{text} is out of range; see 'palisade lease list'")
    return number


at_option = click.option(
    "--at", type=read_address, metavar="HOST:PORT", help="HTTP address of one node, of any kind, to ask instead."
)


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --endpoints, --deadline, --json and the credentials; the command gets one `CliSession` as first argument."""

    @functools.wraps(command)
    def with_session(
        endpoints: list[str], deadline_s: float, as_json: bool, as_user: str | None, token_file: str | None, **rest: Any
    ) -> None:
        shown = credentials_from(as_user, token_file, os.environ)
        keep(shown)
        command(CliSession(endpoints, deadline_s, as_json, shown), **rest)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md."),
        click.option("--token-file", metavar="FILE", help="What `palisade login` wrote (or PALISADE_TOKEN_FILE)."),
        click.option("--user", "as_user", help="Who you are, to nodes that ask (or PALISADE_USER); the password is in "
                     "PALISADE_PASSWORD or PALISADE_PASSWORD_FILE, or asked for."),
        click.option("--deadline", "deadline_s", type=click.FloatRange(0.01, 3600), default=5.0, show_default=True,
                     metavar="SECONDS", help="Longest time for one request."),
        click.option("--endpoints", type=read_endpoints, envvar="PALISADE_ENDPOINTS", default=ENDPOINTS,
                     show_default=True, metavar="HOST:PORT,...",
                     help="Stream addresses of the nodes (or PALISADE_ENDPOINTS)."),
    ):  # fmt: skip
        with_session = option(with_session)
    return with_session
