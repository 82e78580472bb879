"""palisade recovery: what the recoveries of a node did and how far one is, from the node or from its data folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from palisade.base.http_request import NoAnswer
from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.options import read_address
from palisade.cli.session import REFUSED, CliSession, Failure

PATH = "/v1/recovery"


@click.command()
@click.option("--at", metavar="HOST:PORT", type=read_address, help="HTTP address of a running node, of any kind.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Data folder of a node, also of one that has refused to start."
)
@click.option("--watch", is_flag=True, help="Go on until Ctrl-C: show each recovery while it is under way.")
@click.option(
    "--catch-up-difference",
    "difference",
    type=int,
    metavar="REVISIONS",
    help="Until its next start, the node has caught up when LV is at most so far behind LM.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md.")
def recovery(at: str | None, data_dir: Path | None, watch: bool, difference: int | None, as_json: bool) -> None:
    """Show how a node came from its vault to the cluster's state: case, LV, LM, MM, what was moved, time per phase.

    One that is under way is followed to its end, with a bar on a terminal and lines elsewhere; with --json it is
    printed once, as it is, and with --watch a line of JSON each time that it has changed.
    """
    if (at is None) == (data_dir is None):
        raise click.UsageError("give either --at HOST:PORT or --data-dir")
    if at is None and (watch or difference is not None):
        raise click.UsageError("--watch and --catch-up-difference need a running node: give --at HOST:PORT")
    if watch and difference is not None:
        raise click.UsageError("give either --watch or --catch-up-difference")
    session = CliSession([], 0.0, as_json)
    if at is None:
        tell(session, {"recoveries": read_folder(session, data_dir or Path())})
    elif difference is not None:
        change(session, at, difference)
    else:
        show(session, at, watch)


def change(session: CliSession, at: str, difference: int) -> None:
    body = {"revisions": difference}
    found = run_or_fail(session, ask(at, f"{PATH}/catch-up-difference", "PUT", body))
    now, before = found["catch_up_difference"], found["before"]
    session.answer(found, f"the catch-up difference is {now} revisions now, it was {before}; the next start forgets it")


def show(session: CliSession, at: str, watch: bool) -> None:
    from palisade.cli.recovery_watch import follow, screen_for

    if session.as_json and not watch:
        tell(session, run_or_fail(session, recoveries(at)))
        return
    with screen_for(session) as screen:
        last = run_or_fail(session, follow(lambda: recoveries(at), screen, watch))
    tell(session, last)


async def recoveries(at: str) -> dict[str, Any]:
    """Raises NoAnswer, Refused."""
    found: dict[str, Any] = await ask(at, PATH)
    if not {"recoveries", "begun", "under_way"} <= found.keys():
        raise NoAnswer(at, "what does answer reports no recoveries as this version does")
    return found


def read_folder(session: CliSession, data_dir: Path) -> list[dict[str, Any]]:
    from palisade.recovery.report_file import kept_report

    try:
        found = kept_report(data_dir)
    except (OSError, ValueError) as error:
        session.fail(Failure(REFUSED, "not-read", f"the report in {data_dir} can't be read: {error}", False))
    return [] if found is None else [found]


def tell(session: CliSession, shape: dict[str, Any]) -> None:
    from palisade.recovery.report_json import reports_text

    session.answer(shape, reports_text(shape["recoveries"]) or "no recovery has ended yet")
