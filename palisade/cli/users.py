"""palisade user, palisade role: the catalog's operations on permissions, with the names of etcdctl."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import click

from palisade.catalog.operations.all import KINDS
from palisade.catalog.permissions import PRIVILEGES
from palisade.cli.catalog import PROCEDURE, WAIT, begin, show_objects
from palisade.cli.input_file import InputFile
from palisade.cli.options import NAME, client_options
from palisade.cli.session import CliSession

Command = Callable[..., None]
PASSWORD_FILE = click.option(
    "--password-file", type=InputFile(), help="File with the password, - for standard input.  [default: a prompt]"
)
PRIVILEGE = click.argument("privilege", type=click.Choice(list(PRIVILEGES)))
PREFIX = click.argument("prefix")


@click.group()
def user() -> None:
    """Users, their passwords and permissions (docs/security.md)."""


@click.group()
def role() -> None:
    """Roles: permissions that several users share.

    See docs/security.md.
    """


def operation(command: Command) -> Command:
    """The options of a command that changes the catalog."""
    return WAIT(PROCEDURE(client_options(command)))


def run(session: CliSession, kind: str, wait_s: float, procedure: str | None, **given: Any) -> None:
    begin(session, KINDS[kind], wait_s, procedure, given)


def shown(session: CliSession, collection: str, name: str) -> None:
    found = session.call(lambda client: client.catalog_object(collection, name))
    session.answer(found, json.dumps(found, indent=2, ensure_ascii=False))


# Users.


@user.command("add")
@click.argument("name", type=NAME)
@PASSWORD_FILE
@operation
def add_user(session: CliSession, name: str, password_file: Any, **rest: Any) -> None:
    """Create the user NAME, without permissions."""
    run(session, "create-user", user=name, password=password_file, **rest)


@user.command("delete")
@click.argument("name", type=NAME)
@operation
def delete_user(session: CliSession, name: str, **rest: Any) -> None:
    """Delete the user NAME. Its tokens become invalid on every node."""
    run(session, "drop-user", user=name, **rest)


@user.command("passwd")
@click.argument("name", type=NAME)
@PASSWORD_FILE
@operation
def passwd(session: CliSession, name: str, password_file: Any, **rest: Any) -> None:
    """Set another password for the user NAME. Its tokens become invalid on every node."""
    run(session, "set-password", user=name, password=password_file, **rest)


@user.command("list")
@client_options
def list_users(session: CliSession) -> None:
    """List the users with their roles and permissions."""
    show_objects(session, "users")


@user.command("get")
@click.argument("name", type=NAME)
@client_options
def get_user(session: CliSession, name: str) -> None:
    """Print roles and permissions of the user NAME as JSON."""
    shown(session, "users", name)


@user.command("grant-role")
@click.argument("name", type=NAME)
@click.argument("role", type=NAME, metavar="ROLE")
@operation
def grant_role(session: CliSession, name: str, role: str, **rest: Any) -> None:
    """Give the user NAME a role."""
    run(session, "grant-role", user=name, role=role, **rest)


@user.command("revoke-role")
@click.argument("name", type=NAME)
@click.argument("role", type=NAME, metavar="ROLE")
@operation
def revoke_role(session: CliSession, name: str, role: str, **rest: Any) -> None:
    """Revoke a role of the user NAME. When the command returns, it is revoked on every node."""
    run(session, "revoke-role", user=name, role=role, **rest)


@user.command("grant-permission")
@click.argument("name", type=NAME)
@PRIVILEGE
@PREFIX
@operation
def grant_to_user(session: CliSession, name: str, privilege: str, prefix: str, **rest: Any) -> None:
    """Grant the user NAME a privilege on a prefix.

    On all keys that begin with PREFIX; "" for all keys.
    """
    run(session, "grant", subject=f"user:{name}", privilege=privilege, prefix=prefix, **rest)


@user.command("revoke-permission")
@click.argument("name", type=NAME)
@PRIVILEGE
@PREFIX
@operation
def revoke_from_user(session: CliSession, name: str, privilege: str, prefix: str, **rest: Any) -> None:
    """Revoke a privilege of the user NAME. When the command returns, it is revoked on every node."""
    run(session, "revoke", subject=f"user:{name}", privilege=privilege, prefix=prefix, **rest)


# Roles.


@role.command("add")
@click.argument("name", type=NAME)
@operation
def add_role(session: CliSession, name: str, **rest: Any) -> None:
    """Create the role NAME, without permissions."""
    run(session, "create-role", role=name, **rest)


@role.command("delete")
@click.argument("name", type=NAME)
@operation
def delete_role(session: CliSession, name: str, **rest: Any) -> None:
    """Delete the role NAME; all users lose it."""
    run(session, "drop-role", role=name, **rest)


@role.command("list")
@client_options
def list_roles(session: CliSession) -> None:
    """List the roles with their permissions."""
    show_objects(session, "roles")


@role.command("get")
@click.argument("name", type=NAME)
@client_options
def get_role(session: CliSession, name: str) -> None:
    """Print the permissions of the role NAME, as JSON."""
    shown(session, "roles", name)


@role.command("grant-permission")
@click.argument("name", type=NAME)
@PRIVILEGE
@PREFIX
@operation
def grant_to_role(session: CliSession, name: str, privilege: str, prefix: str, **rest: Any) -> None:
    """Grant the role NAME a privilege on a prefix.

    On all keys that begin with PREFIX; "" for all keys.
    """
    run(session, "grant", subject=f"role:{name}", privilege=privilege, prefix=prefix, **rest)


@role.command("revoke-permission")
@click.argument("name", type=NAME)
@PRIVILEGE
@PREFIX
@operation
def revoke_from_role(session: CliSession, name: str, privilege: str, prefix: str, **rest: Any) -> None:
    """Revoke a privilege of the role NAME. When the command returns, it is revoked on every node."""
    run(session, "revoke", subject=f"role:{name}", privilege=privilege, prefix=prefix, **rest)
