"""palisade recovery: reports of a node's recoveries, and progress of a running one, from the node or its folder."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from palisade.base.counted import counted
from palisade.base.http_request import NoAnswer
from palisade.base.network_reason import reason_of
from palisade.cli.given_path import GivenPath
from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import output_options, read_address
from palisade.cli.session import REFUSED, CliSession, Failure
from palisade.cli.target import LOCAL_FOLDER, VARIABLE, local_layout
from palisade.cli.waiting import nothing_shown
from palisade.recovery.catchup import DIFFERENCE_MAX

PATH = "/v1/recovery"
COLUMNS = (
    "node",
    "outcome",
    "case",
    "reason",
    "lv_before",
    "lv",
    "lm",
    "mm",
    "revisions_replayed",
    "bytes_fetched",
    "seconds",
    "error",
)
"""Columns with -o csv: the fields of a report that are single values."""


@click.command()
@click.option("--at", metavar="HOST:PORT", type=read_address, help="HTTP address of a running node of any kind.")
@click.option(
    "--data-dir", type=GivenPath(path_type=Path), help="Data folder of a node, also of one that refused to start."
)
@click.option("--watch", is_flag=True, help="Follow later recoveries too, until Ctrl-C.")
@click.option(
    "--catch-up-difference",
    "difference",
    type=WholeNumber(0, DIFFERENCE_MAX),
    metavar="REVISIONS",
    help="Set until the next start: the node has caught up when LM - LV is at most REVISIONS.",
)
@output_options
def recovery(session: CliSession, at: str | None, data_dir: Path | None, watch: bool, difference: int | None) -> None:
    """Show how a node recovered to the cluster's state.

    The report has the case, LV, LM, MM, the fetched bytes, and the time of each phase.

    A recovery in progress is followed to its end, with a bar on a terminal and lines elsewhere. With --json or -o csv
    the current state is printed once; -o csv prints a row for each recovery. With --json --watch a line of JSON is
    printed on every change.

    Without --at and --data-dir: the last recovery of each node of the cluster in .palisade, from their data folders.
    """
    if at is not None and data_dir is not None:
        raise click.UsageError("give either --at HOST:PORT or --data-dir")
    if at is None and (watch or difference is not None):
        raise click.UsageError("--watch and --catch-up-difference need a running node: give --at HOST:PORT")
    if watch and difference is not None:
        raise click.UsageError("give either --watch or --catch-up-difference")
    if watch and session.as_csv:
        raise click.UsageError("--watch can't print CSV: give --json, or omit -o csv")
    if at is None:
        folders = local_folders() if data_dir is None else [data_dir]
        report(session, {"recoveries": [each for folder in folders for each in read_folder(session, folder)]})
        if data_dir is None:
            session.note("these recoveries have ended; --at HOST:PORT shows one in progress")
    elif difference is not None:
        change(session, at, difference)
    else:
        show(session, at, watch)


def local_folders() -> list[Path]:
    """The data folders of the nodes in `.palisade`, if other commands use this cluster. Raises click.UsageError."""
    layout = None if os.environ.get(VARIABLE) else local_layout(Path(LOCAL_FOLDER))
    if layout is None:
        raise click.UsageError("give either --at HOST:PORT or --data-dir")
    return [folder for member in layout.members() if (folder := Path(LOCAL_FOLDER, member.id, "data")).is_dir()]


def change(session: CliSession, at: str, difference: int) -> None:
    body = {"revisions": difference}
    found = run_or_fail(session, ask(at, f"{PATH}/catch-up-difference", "PUT", body), at)
    now, before = found["catch_up_difference"], found["before"]
    session.answer(
        found, f"the catch-up difference is {counted(now, 'revision')} until the next start; it was {before}"
    )


def show(session: CliSession, at: str, watch: bool) -> None:
    from palisade.cli.recovery_watch import follow, screen_for

    if (session.as_json or session.as_csv) and not watch:
        report(session, run_or_fail(session, recoveries(session, at, nothing_shown)))
        return

    async def followed() -> dict[str, Any]:
        """Shows an error after the bar is erased."""
        with screen_for(session) as screen:
            return await follow(lambda: recoveries(session, at, screen.hide), screen, watch)

    with session.note_after_ctrl_c(
        lambda: f"stopped following the recoveries; 'palisade recovery --at {at}' shows them"
    ):
        found = run_or_fail(session, followed())
    report(session, found)


async def recoveries(session: CliSession, at: str, hide: Callable[[], None]) -> dict[str, Any]:
    """`hide` is called before a notice, which must not be written into a bar. Raises NoAnswer, RequestRefused."""

    def why() -> str:
        hide()
        return f"no answer yet from {at}"

    async with session.notice(why):
        found: dict[str, Any] = await ask(at, PATH)
    if not {"recoveries", "begun", "under_way"} <= found.keys():
        raise NoAnswer(at, "the response has no report of recoveries: not a node of this version")
    return found


def read_folder(session: CliSession, data_dir: Path) -> list[dict[str, Any]]:
    from palisade.node.data_dir import MARKER
    from palisade.recovery.report_file import kept_report

    if not data_dir.is_dir():
        text = f"there is no folder {data_dir}: give the data folder of a node, such as .palisade/n1/data"
        session.fail(Failure(REFUSED, "not-read", text, False))
    try:
        found = kept_report(data_dir)
    except (OSError, ValueError) as error:
        session.fail(
            Failure(REFUSED, "not-read", f"the report in {data_dir} cannot be read: {reason_of(error)}", False)
        )
    if found is None and not (data_dir / MARKER).is_file():
        text = f"{data_dir} is not the data folder of a node: give one, such as .palisade/n1/data"
        session.fail(Failure(REFUSED, "not-read", text, False))
    return [] if found is None else [found]


def report(session: CliSession, shape: dict[str, Any]) -> None:
    from palisade.recovery.report_json import reports_text

    if session.as_csv:
        session.rows(shape, COLUMNS, [[each.get(name) for name in COLUMNS] for each in shape["recoveries"]])
    else:
        session.answer(shape, reports_text(shape["recoveries"]) or "no recovery has ended yet")
