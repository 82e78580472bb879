"""The command `palisade` and its subcommands.

The modules of the subcommands import large modules (client, server, rich) only inside their functions, so that --help
and completion are fast.
"""

from __future__ import annotations

import click

from palisade.base.version import VERSION
from palisade.cli.activation import activation
from palisade.cli.alarm import alarm
from palisade.cli.backup import backup
from palisade.cli.bench import bench
from palisade.cli.catalog import catalog
from palisade.cli.command_group import RootGroup
from palisade.cli.completion import completion
from palisade.cli.fencing import fencing
from palisade.cli.init import init
from palisade.cli.journal import journal
from palisade.cli.kv import compact, delete, get, put, range_
from palisade.cli.lease import lease
from palisade.cli.load import load
from palisade.cli.lock import elect, lock
from palisade.cli.login import login
from palisade.cli.ls import ls
from palisade.cli.man import man
from palisade.cli.member import member
from palisade.cli.node_command import node
from palisade.cli.pipeline import pipeline
from palisade.cli.query import query
from palisade.cli.realtime import segments
from palisade.cli.recovery import recovery
from palisade.cli.region import region
from palisade.cli.restore import recover_quorum, restore
from palisade.cli.scenario import scenario
from palisade.cli.status import status
from palisade.cli.topology import topology
from palisade.cli.txn import txn
from palisade.cli.up import up
from palisade.cli.users import role, user
from palisade.cli.vault import vault
from palisade.cli.watch import watch

EPILOG = """\b
Exit codes: 0 done, 1 refused (nothing was changed), 2 wrong usage,
3 no node could execute it (nothing was changed; retry),
4 outcome unknown (it may have been executed)."""


@click.group(
    cls=RootGroup, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(VERSION, prog_name="palisade")
def main() -> None:
    """Palisade: a replicated, revisioned metadata store.

    Start a cluster on this machine with `palisade up`; the other commands connect to it.
    """


for command in (
    up, node, init,
    put, get, delete, ls, range_, txn, watch, lease, lock, elect, compact, load,
    status, member, topology, recovery, fencing, region, alarm, bench,
    backup, restore, recover_quorum, vault,
    login, user, role, catalog, segments, query, scenario,
    activation, journal, pipeline,
    completion, man,
):  # fmt: skip
    main.add_command(command)
