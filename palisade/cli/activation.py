"""palisade activation: list, show, force, reconcile (docs/activation.md)."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from palisade.cli.given_path import GivenPath
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import NAME, client_options, read_role
from palisade.cli.session import REFUSED, CliSession, Failure

if TYPE_CHECKING:
    from palisade.catalog.activation import ActivationRecord, LocalSequence
    from palisade.catalog.forced_activation import AgreedView, CopyReport, ForcedActivation
    from palisade.client.activation import RoleView

STORE_S = 3.0
"""How long --without-store waits to make sure that the metadata store does not answer."""

WITHOUT_STORE = "If it has lost its majority permanently or for long, give --without-store, which changes the copy only"

copies_option = click.option(
    "--copy",
    "copies",
    type=NAME,
    multiple=True,
    metavar="DIR|HOST:PORT",
    help="A copy: its directory or address (repeatable).",
)
directory_option = click.option(
    "--copy", "directory", required=True, type=GivenPath(path_type=Path, file_okay=False), metavar="DIR",
    help="Directory of the forced copy; its process must be stopped.",
)  # fmt: skip


@click.group()
def activation() -> None:
    """Primary and backup roles: compare and force copies."""


@activation.command("list")
@client_options
def list_(session: CliSession) -> None:
    """List the roles: agreed sequence, lock holder."""
    from palisade.client.activation import read_roles

    views = session.call(read_roles)
    header = ["role", "sequence", "state", "owner", "epoch", "lock held by", "forced"]
    rows = [[view.role, *_row(view.record), view.holder or "-", len(view.forced)] for view in views]
    none = "there is no role with a primary and a backup"
    session.rows({"roles": [shape_of(view) for view in views]}, header, rows, none=none)


def _row(record: ActivationRecord | None) -> list[Any]:
    return ["-"] * 4 if record is None else [record.sequence, record.state.value, record.owner, record.epoch]


@activation.command()
@click.argument("role", type=read_role)
@copies_option
@client_options
def show(session: CliSession, role: str, copies: tuple[str, ...]) -> None:
    """Show the record of ROLE, its lock and its copies.

    For each copy: whether it could become active if no other copy were active.
    """
    from palisade.client.activation import epoch_of, read_role

    async def read(client: Any) -> tuple[RoleView, int]:
        return await read_role(client, role), await epoch_of(client)

    view, epoch = session.call(read)
    reports = reports_of(session, role, copies)
    rows = [copy_shape(view, epoch, report) for report in reports]
    shape = {**shape_of(view), "store_epoch": epoch, "copies": rows, "forced": [asdict(each) for each in view.forced]}
    session.answer(shape, "\n".join(shown(view, epoch, reports, rows)))


def shown(view: RoleView, epoch: int, reports: Sequence[CopyReport], rows: list[dict[str, Any]]) -> list[str]:
    record = view.record
    lines = [without_record(view) if record is None else (
        f"{view.role}: sequence {record.sequence}, {record.state} by {record.owner}, last served with {record.served}, "
        f"epoch {record.epoch} (store {epoch})"
    )]  # fmt: skip
    lines.append(f"lock: {view.holder}, token {view.token}" if view.holder else "lock: free")
    lines += [
        f"copy {report}" if report.problem else f"copy {report}; {row['decision']}"
        for report, row in zip(reports, rows, strict=True)
    ]
    lines += [
        f"forced: sequence {each.sequence} at {each.place} by {each.by}{', an older copy' if each.older else ''}"
        for each in view.forced
    ]
    return lines


def without_record(view: RoleView) -> str:
    if view.holder or view.forced:
        return f"{view.role}: no agreed sequence; the configured primary begins"
    return (
        f"{view.role}: the store has no such role: none of its copies has been active yet. If the name is correct, the "
        "configured primary begins"
    )


def shape_of(view: RoleView) -> dict[str, Any]:
    record = None
    if view.record is not None:
        record = {**asdict(view.record), "state": view.record.state.value}
        del record["role"]
    return {
        "role": view.role,
        "record": record,
        "holder": view.holder or None,
        "token": view.token or None,
        "forced_activations": len(view.forced),
    }


def copy_shape(view: RoleView, epoch: int, report: CopyReport) -> dict[str, Any]:
    """`decision`: of the copy if no other copy were active."""
    from palisade.catalog.activation import ClaimNext, Stop, decide

    if report.problem:
        decision = "not readable"
    else:
        found = decide(view.record, report.local, configured_primary=False, epoch=epoch)
        if isinstance(found, ClaimNext):
            decision = "it may become active"
        else:
            decision = f"{'it stops' if isinstance(found, Stop) else 'it follows'}: {found.reason}"
    local = report.local
    return {
        "place": report.place,
        "sequence": local.sequence if local else None,
        "epoch": local.epoch if local else None,
        "filling": report.filling,
        "active": report.active,
        "problem": report.problem or None,
        "decision": decision,
    }


def reports_of(session: CliSession, role: str, places: Sequence[str]) -> list[CopyReport]:
    from palisade.cli.activation_copies import read_copy

    silent = list(places)

    async def read_one(place: str) -> CopyReport:
        report = await read_copy(role, place)
        silent.remove(place)
        return report

    async def read() -> list[CopyReport]:
        async with session.notice(lambda: f"no answer yet from the copies {', '.join(silent)}" if silent else None):
            return list(await asyncio.gather(*map(read_one, places)))

    return asyncio.run(read()) if places else []


@activation.command()
@click.argument("role", type=read_role)
@directory_option
@click.option(
    "--compare",
    "others",
    type=NAME,
    multiple=True,
    metavar="DIR|HOST:PORT",
    help="Another copy, to compare with (repeatable).",
)
@click.option("--name", type=NAME, help="Name of the copy.  [default: the name of its directory]")
@click.option(
    "--sequence",
    type=WholeNumber(1),
    help="Sequence of the forced copy, above all known ones.  [default: the next one]",
)
@click.option("--use-older-copy", "older", is_flag=True, help="Accept the loss of entries that only a newer copy has.")
@click.option("--without-store", is_flag=True, help="The metadata store has no majority: write the copy only.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@client_options
def force(session: CliSession, role: str, directory: Path, others: tuple[str, ...], yes: bool, **how: Any) -> None:
    """Force one copy of ROLE to become the newest.

    The copy in DIR gets a sequence above all known ones.

    Use it if no copy can become active, for example after a restore of the metadata store or the loss of the role's
    record. The forced copy is compared with every --compare copy that can be reached; if one of them is newer, the
    command is refused without --use-older-copy. Entries that will be lost are printed before anything is changed. The
    audit record is in `palisade activation show ROLE`.

    \b
    palisade activation force orders --copy /data/a --compare 127.0.0.1:7902
    """
    with_errors(session, lambda: _force(session, role, directory, others, yes, how))


def _force(
    session: CliSession, role: str, directory: Path, others: Sequence[str], yes: bool, how: dict[str, Any]
) -> None:
    from palisade.catalog.forced_activation import forced
    from palisade.catalog.row_format import a_name
    from palisade.cli.activation_copies import HeldCopy, operator_now
    from palisade.client.activation import claim_forced, commit_forced, epoch_of, read_role

    with HeldCopy(role, directory) as held:
        agreed: AgreedView | None = None
        view: RoleView | None = None
        if how["without_store"]:
            refuse_answering_store(session)
        else:

            async def read(client: Any) -> tuple[RoleView, int]:
                return await read_role(client, role), await epoch_of(client)

            view, epoch = replace(session, no_answer_remedy=WITHOUT_STORE).call(read)
            agreed = view.agreed(epoch)
        operator = operator_now(older=how["older"], sequence=how["sequence"])
        name = a_name(how["name"] or directory.absolute().name, "--name")
        plan = forced(role, name, held.report(), reports_of(session, role, others), agreed, operator)
        confirm(session, plan, yes)
        if view is None:
            held.keep_pending(plan)
            held.write(plan.new_local)
            text = (
                f"role {role}: the copy in {directory} has sequence {plan.sequence}, in the copy only. When the "
                "metadata store is back, a running copy records it; for a stopped one, run "
                f"'palisade activation reconcile {role} --copy {directory}'"
            )
        else:
            seen = view
            claimed = session.call(lambda client: claim_forced(client, plan, seen))
            held.write(plan.new_local)
            held.remove_pending()  # the commit may be lost; an earlier forced activation must not be resumed after it
            session.call(lambda client: commit_forced(client, plan, claimed))
            text = f"role {role}: the copy in {directory} has the agreed sequence {plan.sequence}; start it"
    session.answer(forced_shape(plan), text)


def refuse_answering_store(session: CliSession) -> None:
    """--without-store is the last resort, because the record and the lock in the store protect the role."""
    from palisade.base.errors import PalisadeError
    from palisade.catalog.errors import NotAllowed
    from palisade.client import Client

    async def answers() -> bool:
        try:
            endpoints = await session.checked_endpoints()
            client = Client(endpoints, timeout_s=STORE_S, credentials=session.shown, wait_for_nodes=False)
            async with client, session.notice_of(client):
                await client.get("activation/")
        except (PalisadeError, OSError, TimeoutError):
            return False
        return True

    if session.run(answers()):
        raise NotAllowed("the metadata store answers: omit --without-store, so that its record is used")


def confirm(session: CliSession, plan: ForcedActivation, yes: bool) -> None:
    """Prints the entries that are lost; asks for confirmation unless `yes`."""
    for line in plan.gives_up:
        print(f"palisade: {line}", file=sys.stderr)
    if yes:
        return
    if session.as_json or not is_terminal():
        read = "read which entries are lost, and " if plan.gives_up else ""
        raise click.UsageError(f"nothing was changed; {read}confirm with --yes")
    question = f"Give role {plan.role} to the copy in {plan.place}, with sequence {plan.sequence}?"
    if not click.confirm(question, err=True):
        print("palisade: nothing was changed", file=sys.stderr)
        sys.exit(REFUSED)


def is_terminal() -> bool:
    return sys.stdin.isatty()


def forced_shape(plan: ForcedActivation) -> dict[str, Any]:
    return {**asdict(plan), "compared": list(plan.compared), "gives_up": list(plan.gives_up)}


@activation.command()
@click.argument("role", type=read_role)
@directory_option
@client_options
def reconcile(session: CliSession, role: str, directory: Path) -> None:
    """Record an activation forced without the store.

    Refused if another copy was activated meanwhile. Both may have served: choose one with `palisade activation force`.
    """
    with_errors(session, lambda: _reconcile(session, role, directory))


def _reconcile(session: CliSession, role: str, directory: Path) -> None:
    from palisade.cli.activation_copies import HeldCopy
    from palisade.client.activation import reconcile_forced

    with HeldCopy(role, directory) as held:

        async def write(sequence: LocalSequence) -> None:
            held.write(sequence)

        pending = held.pending()
        if pending is None:
            session.answer({"role": role, "sequence": None}, f"role {role}: nothing to reconcile in {directory}")
            return
        plan = session.call(lambda client: reconcile_forced(client, pending, write))
        held.remove_pending()
    session.answer(
        forced_shape(plan), f"role {role}: sequence {plan.sequence} of {directory} is agreed; start the copy"
    )


def with_errors(session: CliSession, action: Any) -> None:
    """Handles errors of the copy like those of the metadata store."""
    from palisade.catalog.errors import CatalogError
    from palisade.journal.errors import JournalError

    try:
        action()
    except (JournalError, CatalogError) as error:
        session.fail(Failure(REFUSED, error.code, str(error), error.retry))
    except OSError as error:
        session.fail(Failure(REFUSED, "copy-not-usable", f"{error}; make the directory readable and writable", False))
