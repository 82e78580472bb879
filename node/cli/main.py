"""The command `palisade`: its subcommands, and how every error ends.

The modules of the subcommands import what is heavy (the client, the server, rich) inside their functions only, so that
--help and completion are quick.
"""

from __future__ import annotations

import click

from base.version import VERSION
from node.cli.alarm import alarm
from node.cli.backup import backup
from node.cli.bench import bench
from node.cli.catalog import catalog
from node.cli.fencing import fencing
from node.cli.init import init
from node.cli.kv import compact, delete, get, put, range_
from node.cli.lease import lease
from node.cli.load import load
from node.cli.login import login
from node.cli.member import member
from node.cli.node_command import node
from node.cli.partitions import partitions
from node.cli.recovery import recovery
from node.cli.region import region
from node.cli.restore import recover_quorum, restore
from node.cli.scenario import scenario
from node.cli.status import status
from node.cli.topology import topology
from node.cli.txn import txn
from node.cli.up import up
from node.cli.vault import vault
from node.cli.watch import watch

EPILOG = """\b
Exit codes: 0 done, 1 refused (nothing was changed), 2 wrong usage, 3 no node could do it (nothing was
changed; try again), 4 outcome unknown (it may have been done)."""


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(VERSION, prog_name="palisade")
def main() -> None:
    """Palisade: a replicated, revisioned metadata store.

    Start a cluster on this machine with `palisade up`; the other commands talk to it.
    """


for command in (up, node, put, get, delete, range_, txn, watch, lease, compact, status, member, load, backup, restore):
    main.add_command(command)
main.add_command(recover_quorum)
main.add_command(topology)
main.add_command(init)
main.add_command(alarm)
main.add_command(login)
main.add_command(catalog)
main.add_command(vault)
main.add_command(recovery)
main.add_command(partitions)
main.add_command(fencing)
main.add_command(region)
main.add_command(scenario)
main.add_command(bench)
