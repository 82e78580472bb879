"""The options that client commands share."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from palisade.base.address import Address, AddressError
from palisade.cli.credentials import credentials_from, keep
from palisade.cli.numbers import Number
from palisade.cli.session import CliSession
from palisade.cli.target import find_target, read_endpoints
from palisade.metastore.limits import Limits

OUTPUTS = ("table", "json", "csv")


def read_address(text: str) -> str:
    """'host:port', validated."""
    try:
        return str(Address.parse(text.strip()))
    except AddressError as error:
        raise click.BadParameter(str(error)) from None


class GivenText(click.types.StringParamType):
    """A text that is not empty. `noun`: what it is."""

    def __init__(self, noun: str) -> None:
        self._noun = noun

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(super().convert(value, param, ctx))
        if not text.strip():
            self.fail(f"is empty; give {self._noun}", param, ctx)
        return text


NAME = GivenText("a name")
"""An empty name, as of an unset variable of a script, must not count as an option that is not given."""
FILE = GivenText("a file name")


def read_role(text: str) -> str:
    """The name of a role with a primary and a backup."""
    from palisade.catalog.errors import BadField
    from palisade.catalog.row_format import a_name

    try:
        return a_name(text, "role")
    except BadField as error:
        raise click.BadParameter(str(error).removeprefix("role: ")) from None


def read_bytes(text: str) -> bytes:
    """The bytes of the argument as it was typed."""
    return text.encode("utf-8", "surrogateescape")


def read_lease(text: str) -> int:
    """The number of a lease, decimal or with 0x."""
    try:
        number = int(text, 0)
    except ValueError:
        raise click.BadParameter(f"{text!r:.60} is not the number of a lease; see 'palisade lease list'") from None
    if not 0 < number < 1 << 63:
        raise click.BadParameter(f"{text:.60} is out of range; give 1 to {(1 << 63) - 1}")
    return number


def read_time(text: str) -> float:
    """Seconds, from '10', '1.5', '1.5s' or '500ms'."""
    number, unit = (text[:-2], 1000) if text.endswith("ms") else (text.removesuffix("s"), 1)
    try:
        time_s = float(number) / unit
    except ValueError:
        time_s = math.nan
    if -math.inf < time_s <= 0:
        raise click.BadParameter(f"{text:.60} is out of range; give more than 0 seconds")
    if not 0 < time_s < math.inf:
        raise click.BadParameter(
            f"{text!r:.60} is not a time; give seconds, such as 10 or 1.5s, or milliseconds: 500ms"
        )
    return time_s


def read_moment(text: str) -> str:
    """A day or a time, as it was typed."""
    from palisade.catalog.errors import BadField
    from palisade.catalog.segment import moment_ms

    try:
        moment_ms(text)
    except BadField as error:
        raise click.BadParameter(str(error).removeprefix("time: ")) from None
    return text


def read_lease_time(text: str) -> float:
    """As `read_time`, within the limits of a lease. The store's error would quote the time in whole milliseconds."""
    time_s = read_time(text)
    limits = Limits()
    least_s, most_s = limits.lease_ttl_ms_min / 1000, limits.lease_ttl_ms_max // 1000
    if not least_s <= time_s <= most_s:
        raise click.BadParameter(f"{text:.60} is out of range; give {least_s:g} to {most_s} seconds")
    return time_s


serializable_option = click.option(
    "--serializable",
    is_flag=True,
    help="Read the local state of the node, which may be outdated. With authorization on, verifying the user needs a "
    "quorum.",
)
at_option = click.option(
    "--at", type=read_address, metavar="HOST:PORT", help="HTTP address of the node to query, which may be of any kind."
)


def output_form(output: str | None, *, as_json: bool) -> str | None:
    if as_json and output not in (None, "json"):
        raise click.UsageError(f"give either --json or -o {output}")
    return "json" if as_json else output


def with_output(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--json", "as_json", is_flag=True, help="The same as -o json, in the shapes of docs/cli.md."),
        click.option("-o", "--output", type=click.Choice(OUTPUTS), help="Format of the output.  [default: table]"),
    ):
        command = option(command)
    return command


def output_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds -o and --json to a command that needs no cluster, or finds it in another way; it gets a `CliSession` without
    endpoints as its first argument."""

    @functools.wraps(command)
    def with_session(output: str | None, as_json: bool, **rest: Any) -> None:
        form = output_form(output, as_json=as_json)
        command(CliSession((), 0.0, form == "json", as_csv=form == "csv"), **rest)

    return with_output(with_session)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds --endpoints, --timeout, -o and --json; the command gets one `CliSession` as its first argument."""

    @functools.wraps(command)
    def with_session(
        endpoints: tuple[str, ...] | None, deadline_s: float, output: str | None, as_json: bool, **rest: Any
    ) -> None:
        form = output_form(output, as_json=as_json)
        target = find_target(endpoints, os.environ, Path())
        command(
            CliSession(
                target.endpoints,
                deadline_s,
                form == "json",
                source=target.source,
                as_csv=form == "csv",
                up_runs=target.up_runs,
            ),
            **rest,
        )

    found = with_output(with_session)
    for option in (
        click.option("--timeout", "deadline_s", type=Number(0.01, 3600), default=5.0, show_default=True,
                     metavar="SECONDS", help="Longest time for one request."),
        click.option("--endpoints", type=read_endpoints, metavar="HOST:PORT,...",
                     help="Stream addresses of the nodes.  [default: PALISADE_ENDPOINTS, else the cluster in .palisade,"
                     " else the default ports of `palisade up`]"),
    ):  # fmt: skip
        found = option(found)
    return found


def client_options(command: Callable[..., None]) -> Callable[..., None]:
    """`cluster_options` and the options for credentials."""

    @functools.wraps(command)
    def with_credentials(session: CliSession, as_user: str | None, token_file: str | None, **rest: Any) -> None:
        shown = credentials_from(as_user, token_file, os.environ)
        keep(shown)
        command(session.with_credentials(shown), **rest)

    for option in (
        click.option("--token-file", type=NAME, metavar="FILE",
                     help="File that `palisade login` wrote (or PALISADE_TOKEN_FILE)."),
        click.option("--user", "as_user", type=NAME, help="User name (or PALISADE_USER); the password comes from "
                     "PALISADE_PASSWORD, PALISADE_PASSWORD_FILE, or a prompt."),
    ):  # fmt: skip
        with_credentials = option(with_credentials)
    return cluster_options(with_credentials)
