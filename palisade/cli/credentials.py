"""The credentials of the command line: --user with a password, --token-file, or the environment.

A password is never an argument, because all users of the machine can read arguments. Commands that send HTTP requests
take the credentials from the options of the running command (`shown`), so that no request can omit them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import click

from palisade.base.input_file import ending_input
from palisade.base.network_reason import reason_of
from palisade.wire.credentials import Credentials, Password, StoredToken, Token, node_proof
from palisade.wire.tokens import TOKEN_CHARACTERS_MAX

META = "palisade.credentials"
CLUSTER_LINE = "cluster-id: "
"""Begins the second line of a token file that `palisade login` has written."""


def credentials_from(
    user: str | None, token_file: str | None, environ: Mapping[str, str], *, ask: bool = True
) -> Credentials | None:
    """Precedence: user, token, join token; options before the environment. Raises click.UsageError."""
    if user and token_file:
        raise click.UsageError("give either --user or --token-file")
    given = user is not None or token_file is not None
    if not given:
        user, token_file = environ.get("PALISADE_USER"), environ.get("PALISADE_TOKEN_FILE")
    if user:
        return Password(user, password_of(user, environ, ask=ask))
    if token_file:
        return token_in(token_file, "" if given else "PALISADE_TOKEN_FILE")
    return node_credentials(environ)


def node_credentials(environ: Mapping[str, str]) -> Credentials | None:
    join_token = environ.get("PALISADE_JOIN_TOKEN")
    return node_proof(join_token) if join_token else None


def prompts_for_password(environ: Mapping[str, str]) -> bool:
    """Whether `password_of` asks on the terminal."""
    given = environ.get("PALISADE_PASSWORD") or environ.get("PALISADE_PASSWORD_FILE")
    return not given and sys.stdin.isatty()


def password_of(user: str, environ: Mapping[str, str], *, ask: bool = True) -> str:
    """Raises click.UsageError if there is no password and no terminal for a prompt."""
    if environ.get("PALISADE_PASSWORD"):
        return possible_password(environ["PALISADE_PASSWORD"], "PALISADE_PASSWORD")
    if path := environ.get("PALISADE_PASSWORD_FILE"):
        variable = "PALISADE_PASSWORD_FILE"
        return possible_password(text_in(path, "password", variable), file_named(path, "password", variable))
    if not ask or not sys.stdin.isatty():
        raise click.UsageError(f"no password for {user}: set PALISADE_PASSWORD or PALISADE_PASSWORD_FILE")
    return possible_password(str(click.prompt(f"password of {user}", hide_input=True, err=True)), "the password")


def possible_password(text: str, named: str) -> str:
    """Raises click.UsageError for a text that is longer than any password: a request with it may be too large."""
    from palisade.catalog.passwords import LEAST, MOST

    if len(text) > MOST:
        raise click.UsageError(f"{named} has {len(text)} characters, allowed are {LEAST} to {MOST}; correct it")
    return text


def token_in(path: str, variable: str) -> Token:
    """The token in a file, and the cluster ID if its second line has one. `variable`: as in `text_in`."""
    first, _, second = text_in(path, "token", variable).partition("\n")
    named = file_named(path, "token", variable)
    if len(first) > TOKEN_CHARACTERS_MAX:
        text = f"has {len(first)} characters in its first line, allowed are {TOKEN_CHARACTERS_MAX}"
        raise click.UsageError(f"{named} {text}: write one with 'palisade login'")
    if not first.strip():
        raise click.UsageError(f"{named} has an empty first line: write one with 'palisade login'")
    if second.startswith(CLUSTER_LINE):
        return StoredToken(first.rstrip("\r"), second.removeprefix(CLUSTER_LINE).strip(), path)
    return Token(first.rstrip("\r"))


def token_file_text(token: str, cluster_id: str) -> str:
    return f"{token}\n{CLUSTER_LINE}{cluster_id}\n" if cluster_id else f"{token}\n"


def file_named(path: str, what: str, variable: str) -> str:
    return f"the {what} file {path}" + (f" (from {variable})" if variable else "")


def text_in(path: str, what: str, variable: str) -> str:
    """The text without line ends at its end. `variable`: of the environment, if the path is from there. Raises
    click.UsageError, also for an empty text."""
    named = file_named(path, what, variable)
    try:
        text = ending_input(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise click.UsageError(f"{named} cannot be read: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"{named} cannot be read: it is not UTF-8") from None
    if not text:
        raise click.UsageError(f"{named} is empty")
    return text


def keep(found: Credentials | None) -> None:
    """Stores the credentials for the rest of this command."""
    context = click.get_current_context(silent=True)
    if context is not None:
        context.meta[META] = found


def shown() -> Credentials | None:
    """The credentials of the running command's options, else those of the environment."""
    context = click.get_current_context(silent=True)
    if context is not None and META in context.meta:
        found: Credentials | None = context.meta[META]
        return found
    return credentials_from(None, None, os.environ, ask=False)
