"""The command `palisade`: its subcommands, and how every error ends.

The modules of the subcommands import what is heavy (the client, the server, rich) inside their functions only, so that
--help and completion are quick.
"""

from __future__ import annotations

import click

from palisade.base.version import VERSION
from palisade.cli.alarm import alarm
from palisade.cli.backup import backup
from palisade.cli.bench import bench
from palisade.cli.catalog import catalog
from palisade.cli.fencing import fencing
from palisade.cli.init import init
from palisade.cli.kv import compact, delete, get, put, range_
from palisade.cli.lease import lease
from palisade.cli.load import load
from palisade.cli.lock import elect, lock
from palisade.cli.login import login
from palisade.cli.member import member
from palisade.cli.node_command import node
from palisade.cli.partitions import partitions
from palisade.cli.recovery import recovery
from palisade.cli.region import region
from palisade.cli.restore import recover_quorum, restore
from palisade.cli.scenario import scenario
from palisade.cli.status import status
from palisade.cli.topology import topology
from palisade.cli.txn import txn
from palisade.cli.up import up
from palisade.cli.vault import vault
from palisade.cli.watch import watch

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
main.add_command(lock)
main.add_command(elect)
