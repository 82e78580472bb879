"""palisade catalog: a command for each operation, built from its definition; list, show, procedures."""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

import click

from palisade.base.errors import by_code
from palisade.catalog.errors import BadField, CatalogError
from palisade.catalog.operations.all import KINDS
from palisade.catalog.operations.operation_kind import Field, OperationKind
from palisade.cli.catalog_fields import in_words_of_command
from palisade.cli.input_file import InputFile
from palisade.cli.numbers import Number, WholeNumber
from palisade.cli.options import NAME, client_options
from palisade.cli.printing import print_json
from palisade.cli.session import REFUSED, UNKNOWN, CliSession, Failure

POSITIONAL = ("text", "number", "many")
COLUMN_PARTS = ("name", "type", "category")
SERIES_PARTS = ("name", "type", "encoding", "compression")
STEP_S = 2.0
RETRY_S = 0.1
LAST_TRY = 0.25
"""With less than this share of the deadline left, a refused operation is not sent again, because its outcome would be
unknown."""


@click.group()
def catalog() -> None:
    """Databases, tables, devices, TTL rules and permissions.

    Also templates, views, users and roles: docs/catalog.md.
    """


# Operations.


def is_argument(field: Field) -> bool:
    return field.required and field.shape in POSITIONAL


def help_of(kind: OperationKind) -> str:
    """The help text with the meaning of the arguments, which click does not show."""
    arguments = [f"{field.name.upper()}: {field.help}." for field in kind.fields if is_argument(field)]
    return "\n\n".join((kind.help, " ".join(arguments)))


def parameters_of(kind: OperationKind) -> list[click.Parameter]:
    """Required fields that are names become arguments, in order; all other fields become options."""
    return [parameter_of(field) for field in kind.fields]


def parameter_of(field: Field) -> click.Parameter:
    if is_argument(field):
        return click.Argument([field.name], nargs=-1 if field.shape == "many" else 1, required=True)
    option = "--" + field.name.replace("_", "-")
    if field.shape == "flag":
        return click.Option([option, field.name], is_flag=True, help=field.help)
    if field.shape == "password":
        text = "File with the password, - for standard input.  [default: a prompt]"
        return click.Option(["--password-file", field.name], type=InputFile(), help=text)
    if field.shape in ("columns", "series", "properties"):
        singular = {"columns": "--column", "properties": "--property"}.get(field.shape, "--series")
        metavar = {"properties": "NAME[=TEXT]"}.get(field.shape, "NAME:TYPE[:...]")
        return click.Option(
            [singular, field.name],
            multiple=True,
            required=field.required,
            metavar=metavar,
            help=f"{field.help}; repeatable",
        )
    return click.Option([option, field.name], required=field.required, help=field.help)


def request_of(kind: OperationKind, given: dict[str, Any]) -> dict[str, Any]:
    """The fields of the operation, from the typed arguments."""
    read: dict[str, Callable[[Any], Any]] = {
        "many": list,
        "columns": lambda texts: [parts_of(text, COLUMN_PARTS) for text in texts],
        "series": lambda texts: [parts_of(text, SERIES_PARTS) for text in texts],
        "properties": lambda texts: dict(map(property_of, texts)),
        "password": password_of,
    }
    found = {field.name: read.get(field.shape, lambda value: value)(given[field.name]) for field in kind.fields}
    return {name: value for name, value in found.items() if value not in (None, {})}


def parts_of(text: str, names: tuple[str, ...]) -> dict[str, str]:
    parts = text.split(":")
    if not 2 <= len(parts) <= len(names):
        raise click.UsageError(f"{text!r:.60} is not {':'.join(names[:2])}[:{':'.join(names[2:])}]")
    return {name: part for name, part in zip(names, parts, strict=False) if part}


def property_of(text: str) -> tuple[str, str | None]:
    """name=text; a name alone removes the property."""
    name, equals, value = text.partition("=")
    return name, value if equals else None


def password_of(file: Any) -> str:
    """A password is never an argument, because all users of the machine can read arguments.

    Raises click.UsageError without a terminal."""
    if file is not None:
        content = file.read()
        return (content.decode() if isinstance(content, bytes) else content).rstrip("\r\n")
    if not sys.stdin.isatty():
        line = sys.stdin.readline().rstrip("\r\n")
        if not line:
            raise click.UsageError("no password: give --password-file FILE, or a line on standard input")
        return line
    return str(click.prompt("password", hide_input=True, confirmation_prompt=True, err=True))


def begin(
    session: CliSession, kind: OperationKind, wait_s: float, procedure: str | None, given: dict[str, Any]
) -> None:
    fields = request_of(kind, given)
    parameters = click.get_current_context().command.params

    async def first(client: Any, wait_s: float, timeout_s: float) -> Any:
        try:
            for field in kind.fields:
                if field.shape == "password":  # of a wrong length: the request may be larger than the cluster accepts
                    field.read(fields.get(field.name), field.name)
            return await client.catalog_do(kind.name, fields, procedure=id_, wait_s=wait_s, timeout_s=timeout_s)
        except BadField as error:
            raise BadField(in_words_of_command(str(error), parameters, given)) from None

    id_ = procedure or secrets.token_hex(8)
    remark = f"the operation continues if it has started; 'palisade catalog procedure {id_}' shows its state"
    with session.note_after_ctrl_c(lambda: remark):
        view = follow(session, id_, wait_s, first)
    report(session, view, wait_s)


First = Callable[[Any, float, float], Any]
"""Begins an operation: client, wait_s, timeout_s."""


def follow(session: CliSession, id_: str, wait_s: float, first: First) -> dict[str, Any]:
    """Waits until the operation is done and released, or `wait_s` has passed. The calls are short, so that a node may
    fail meanwhile."""
    from palisade.raftgroup.errors import OutcomeUnknown, Unavailable

    async def run(client: Any) -> dict[str, Any]:
        until = time.monotonic() + wait_s

        def step_s() -> float:
            return max(0.0, min(STEP_S, session.deadline_s / 2, until - time.monotonic()))

        view = await begun(client, session.deadline_s, id_, step_s, first)
        while not (view["ended"] and view["released"]) and step_s() > 0:
            try:
                view = await client.procedure(id_, wait_s=step_s())
            except (OutcomeUnknown, Unavailable):
                await asyncio.sleep(RETRY_S if step_s() else 0)
        return view

    view: dict[str, Any] = session.call(run, warns_of_writes=False)
    if view["error"] is not None:
        raise_for(session, view["error"])
    return view


async def begun(client: Any, deadline_s: float, id_: str, step_s: Callable[[], float], first: First) -> dict[str, Any]:
    """The procedure, as soon as a node answers that it was begun, which has to be within `deadline_s`.

    A call without a response is sent again; its id makes that safe. After a call with an unknown outcome, no error
    claims that nothing was done.
    """
    from palisade.client.refused_addresses import NothingListens
    from palisade.raftgroup.errors import OutcomeUnknown, Unavailable
    from palisade.wire.error_codes import NotInitialized, WrongPort

    until = time.monotonic() + deadline_s
    doubts: list[OutcomeUnknown] = []

    def may_repeat(error: Exception) -> bool:
        useless = isinstance(error, NothingListens | NotInitialized | WrongPort)
        return not useless and step_s() > 0 and time.monotonic() + LAST_TRY * deadline_s < until

    def unknown(why: str) -> OutcomeUnknown:
        return OutcomeUnknown(f"{why}. The same command with --procedure {id_} is safe to repeat")

    while True:
        left_s = max(0.0, until - time.monotonic())
        try:
            view: dict[str, Any] = await first(client, step_s(), left_s)
            return view
        except (OutcomeUnknown, Unavailable) as error:
            if isinstance(error, OutcomeUnknown):
                doubts.append(error)
            if not may_repeat(error):
                raise unknown(str(doubts[0])) if doubts else error from None
            await asyncio.sleep(RETRY_S)


def raise_for(session: CliSession, error: dict[str, str]) -> NoReturn:
    """Ends the process as for an operation that the node has refused."""
    kind = by_code(CatalogError).get(error["code"], CatalogError)
    session.fail(Failure(REFUSED, error["code"], error["message"], kind.retry))


def report(session: CliSession, view: dict[str, Any], wait_s: float) -> None:
    from palisade.cli.catalog_rows import outcome_line

    if (view["ended"] and view["released"]) or wait_s == 0:
        session.answer(view, outcome_line(view))
        return
    if session.as_json:
        print_json(view)
    session.fail(Failure(UNKNOWN, "catalog-pending", outcome_line(view), False))


WAIT = click.option(
    "--wait", "wait_s", type=Number(0, 86_400), default=30.0, show_default=True, metavar="SECONDS",
    help="Longest time to wait until the change is visible on every node; 0: start the operation, then exit.",
)  # fmt: skip
PROCEDURE = click.option(
    "--procedure",
    type=NAME,
    metavar="ID",
    help="ID of the procedure: the same command with the same ID is executed once.",
)


def operation_command(kind: OperationKind) -> click.Command:
    def run(session: CliSession, wait_s: float, procedure: str | None, **given: Any) -> None:
        begin(session, kind, wait_s, procedure, given)

    command = click.command(kind.name, help=help_of(kind), short_help=kind.help)(WAIT(PROCEDURE(client_options(run))))
    command.params = [*parameters_of(kind), *command.params]
    return command


for each in KINDS.values():
    catalog.add_command(operation_command(each))


# Reads.


@catalog.command("list")
@click.argument("collection", type=click.Choice(
    ["databases", "tables", "devices", "templates", "template-paths", "views", "resources", "ttl", "users", "roles"]
))  # fmt: skip
@click.option("--below", default="", metavar="PATH", help="Only objects at this path and below it.")
@client_options
def list_(session: CliSession, collection: str, below: str) -> None:
    """List the objects of a COLLECTION, ordered by name."""
    show_objects(session, collection, below)


def show_objects(session: CliSession, collection: str, below: str = "") -> None:
    from palisade.cli.catalog_rows import HEADER, none_in, object_row

    found = session.call(lambda client: client.catalog_objects(collection, below=below))
    rows = [object_row(collection, shape) for shape in found]
    session.rows({"objects": found}, HEADER, rows, cut="what", none=none_in(collection, below))


@catalog.command()
@click.argument("collection", type=NAME)
@click.argument("name", type=NAME)
@client_options
def show(session: CliSession, collection: str, name: str) -> None:
    """Print one object of a COLLECTION as JSON."""
    import json

    found = session.call(lambda client: client.catalog_object(collection, name))
    session.answer(found, json.dumps(found, indent=2, ensure_ascii=False))


@catalog.command()
@click.option("--open", "open_only", is_flag=True, help="Only procedures that have not ended.")
@click.option(
    "--limit", type=WholeNumber(1, 1000), default=100, show_default=True, help="Largest number of procedures."
)
@client_options
def procedures(session: CliSession, open_only: bool, limit: int) -> None:
    """List the latest procedures, newest first.

    With their state and the nodes that they wait for.
    """
    from palisade.cli.catalog_rows import PROCEDURES_HEADER, procedure_row

    found = session.call(lambda client: client.procedures(open_only=open_only, limit=limit))
    rows = [procedure_row(view) for view in found]
    none = f"there is no procedure{' that has not ended' if open_only else ''}"
    session.rows({"procedures": found}, PROCEDURES_HEADER, rows, wraps=["waits for"], none=none)


@catalog.command()
@click.argument("id_", type=NAME, metavar="ID")
@client_options
def procedure(session: CliSession, id_: str) -> None:
    """Print all steps of a procedure."""
    from palisade.cli.catalog_rows import procedure_lines

    found = session.call(lambda client: client.procedure(id_))
    session.answer(found, "\n".join(procedure_lines(found)))


@catalog.command()
@click.argument("id_", type=NAME, metavar="ID")
@client_options
def cancel(session: CliSession, id_: str) -> None:
    """Cancel a procedure.

    Refused once it has destroyed data or changed permissions.
    """
    found = session.call(lambda client: client.procedure_cancel(id_))
    session.answer(found, f"procedure {id_} is {found['state']}")
