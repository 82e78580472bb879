"""palisade up."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from palisade.cli.credentials import shown
from palisade.cli.given_path import GivenPath
from palisade.cli.numbers import WholeNumber
from palisade.cli.session import REFUSED, CliSession, Failure
from palisade.node.config import LOG_FORMATS
from palisade.node.local_layout import BASE_PORT_MAX, BASE_PORT_MIN, NODES_MAX


@click.command()
@click.option(
    "--nodes",
    type=WholeNumber(1, NODES_MAX),
    metavar="N",
    help="Number of nodes, preferably odd.  [default: 3 in a new cluster]",
)
@click.option(
    "--data-dir",
    type=GivenPath(path_type=Path),
    default=".palisade",
    show_default=True,
    help="Folder of the cluster. The first start creates it; later ones continue with its data.",
)
@click.option(
    "--base-port",
    type=WholeNumber(BASE_PORT_MIN, BASE_PORT_MAX),
    metavar="P",
    help="Node i has HTTP at P+i, peer at P+100+i, stream at P+200+i, SWIM at P+300+i.  [default: 7400, if new]",
)
@click.option("--demo/--no-demo", default=True, help="Load the demo catalog at the first start.  [default: demo]")
@click.option(
    "--config", type=GivenPath(path_type=Path), help="TOML file with options of palisade node, for every node."
)
@click.option("--log-format", type=click.Choice(LOG_FORMATS), help="Format of the nodes' log lines.  [default: text]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per event, in the shapes of docs/cli.md.")
def up(
    nodes: int | None,
    data_dir: Path,
    base_port: int | None,
    demo: bool,
    config: Path | None,
    log_format: str | None,
    as_json: bool,
) -> None:
    """Run a cluster on this machine, in the foreground.

    N processes on 127.0.0.1. Ctrl-C stops them.

    If a node ends by itself, its reason and the last lines of its log are printed, and it is restarted after a pause.
    The first Ctrl-C (or SIGTERM) stops the nodes in order within 10 seconds, a second one kills them. The nodes always
    end with this process: each watches a pipe to it.

    Variables such as PALISADE_HEARTBEAT_MS apply to every node. Commands in the same folder find the cluster in
    .palisade; for others the command prints a line that sets PALISADE_ENDPOINTS.
    """  # fmt: skip
    from palisade.cli.supervisor.screen import screen_for
    from palisade.cli.supervisor.up import UpRefused, UpRequest
    from palisade.cli.supervisor.up import up as run_up

    options = [
        *(("--config", str(config.absolute())) if config else ()),
        *(("--log-format", log_format) if log_format else ()),
    ]
    request = UpRequest(data_dir, nodes, base_port, demo, options, shown() if demo else None)
    try:
        with screen_for(sys.stdout, as_json) as screen:
            code = asyncio.run(run_up(request, screen))
    except UpRefused as error:
        CliSession([], 0, as_json).fail(Failure(REFUSED, "refused", str(error), False))
    sys.exit(code)
