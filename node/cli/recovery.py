"""palisade recovery: what the recoveries of a node did, from the node itself or from its data folder."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from node.cli.session import INTERRUPTED, REFUSED, UNAVAILABLE, Failure, Session

TIMEOUT_S = 5.0


@click.command()
@click.option("--at", metavar="HOST:PORT", help="HTTP address of a running node: every recovery of its process.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Data folder of a node, also of one that has refused to start."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in the shapes of docs/cli.md.")
def recovery(at: str | None, data_dir: Path | None, as_json: bool) -> None:
    """Show how a node came from its vault to the cluster's state: case, LV, LM, MM, what was moved, time per phase."""
    from node.recovery_view import report_lines

    if (at is None) == (data_dir is None):
        raise click.UsageError("give either --at HOST:PORT or --data-dir")
    session = Session([], 0.0, as_json)
    reports = ask_node(session, at) if at is not None else read_folder(session, data_dir or Path())
    text = "\n".join("\n    ".join(report_lines(report)) for report in reports)
    session.answer({"recoveries": reports}, text or "no recovery has ended yet")


def read_folder(session: Session, data_dir: Path) -> list[dict[str, Any]]:
    from node.kept_report import kept_report

    try:
        found = kept_report(data_dir)
    except (OSError, ValueError) as error:
        session.fail(Failure(REFUSED, "not-read", f"the report in {data_dir} can't be read: {error}", False))
    return [] if found is None else [found]


def ask_node(session: Session, at: str) -> list[dict[str, Any]]:
    import aiohttp

    async def ask() -> list[dict[str, Any]]:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as http, http.get(f"http://{at}/v1/recovery") as answer:
            found: list[dict[str, Any]] = (await answer.json())["recoveries"]
            return found

    try:
        return asyncio.run(ask())
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
        text = f"no node tells of its recoveries at {at}: {error or type(error).__name__}"
        session.fail(Failure(UNAVAILABLE, "unreachable", text, True))
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
