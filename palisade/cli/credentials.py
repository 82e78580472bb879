"""Who the command line is, to nodes that ask: --user with a password, --token-file, or the environment.

A password is never an argument: everybody on the machine can read those. Commands that ask over HTTP take what the
options of the command say from here (`headers`), so that no way of asking can forget it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from palisade.wire.credentials import Credentials, Password, Token, header_of, node_proof

META = "palisade.credentials"


def credentials_from(
    user: str | None, token_file: str | None, environ: Mapping[str, str], *, ask: bool = True
) -> Credentials | None:
    """A user before a token before the join token; what was typed before the environment. Raises click.UsageError."""
    if user and token_file:
        raise click.UsageError("give either --user or --token-file")
    if user is None and token_file is None:
        user, token_file = environ.get("PALISADE_USER"), environ.get("PALISADE_TOKEN_FILE")
    if user:
        return Password(user, password_of(user, environ, ask=ask))
    if token_file:
        return Token(text_in(token_file, "token"))
    join_token = environ.get("PALISADE_JOIN_TOKEN")
    return node_proof(join_token) if join_token else None


def password_of(user: str, environ: Mapping[str, str], *, ask: bool = True) -> str:
    if "PALISADE_PASSWORD" in environ:
        return environ["PALISADE_PASSWORD"]
    if environ.get("PALISADE_PASSWORD_FILE"):
        return text_in(environ["PALISADE_PASSWORD_FILE"], "password")
    if not ask or not sys.stdin.isatty():
        raise click.UsageError(f"there is no password for {user}: set PALISADE_PASSWORD or PALISADE_PASSWORD_FILE")
    return str(click.prompt(f"password of {user}", hide_input=True, err=True))


def text_in(path: str, what: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"the {what} in {path} can't be read: {error}") from None


def keep(shown: Credentials | None) -> None:
    """For the whole of this command."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[META] = shown


def shown() -> Credentials | None:
    """What the options of this command said, else the environment."""
    context = click.get_current_context(silent=True)
    if context is not None and META in context.meta:
        found: Credentials | None = context.meta[META]
        return found
    return credentials_from(None, None, os.environ, ask=False)


def headers() -> dict[str, str]:
    """Of every request over HTTP."""
    return header_of(shown())
