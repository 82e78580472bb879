"""The command `palisade` and its subcommands.

Only the module of the subcommand that runs is imported. It imports large modules (client, server, rich) inside its
functions, so that --help and completion are fast.
"""

from __future__ import annotations

import click

from palisade.base.version import VERSION
from palisade.cli.command_group import RootGroup
from palisade.cli.lazy_commands import LazyCommands

COMMANDS = {
    "up": "palisade.cli.up:up",
    "node": "palisade.cli.node_command:node",
    "init": "palisade.cli.init:init",
    "put": "palisade.cli.kv:put",
    "get": "palisade.cli.kv:get",
    "del": "palisade.cli.delete:delete",
    "ls": "palisade.cli.ls:ls",
    "range": "palisade.cli.kv:range_",
    "txn": "palisade.cli.txn:txn",
    "watch": "palisade.cli.watch:watch",
    "lease": "palisade.cli.lease:lease",
    "lock": "palisade.cli.lock:lock",
    "elect": "palisade.cli.lock:elect",
    "compact": "palisade.cli.kv:compact",
    "load": "palisade.cli.load:load",
    "status": "palisade.cli.status:status",
    "member": "palisade.cli.member:member",
    "topology": "palisade.cli.topology:topology",
    "recovery": "palisade.cli.recovery:recovery",
    "fencing": "palisade.cli.fencing:fencing",
    "region": "palisade.cli.region:region",
    "alarm": "palisade.cli.alarm:alarm",
    "bench": "palisade.cli.bench:bench",
    "backup": "palisade.cli.backup:backup",
    "restore": "palisade.cli.restore:restore",
    "recover-quorum": "palisade.cli.restore:recover_quorum",
    "vault": "palisade.cli.vault:vault",
    "login": "palisade.cli.login:login",
    "user": "palisade.cli.users:user",
    "role": "palisade.cli.users:role",
    "catalog": "palisade.cli.catalog:catalog",
    "segments": "palisade.cli.realtime:segments",
    "query": "palisade.cli.query:query",
    "scenario": "palisade.cli.scenario:scenario",
    "activation": "palisade.cli.activation:activation",
    "journal": "palisade.cli.journal:journal",
    "pipeline": "palisade.cli.pipeline:pipeline",
    "completion": "palisade.cli.completion:completion",
    "man": "palisade.cli.man:man",
}
"""Name -> module and attribute."""
EPILOG = """\b
Exit codes: 0 done, 1 refused (nothing was changed), 2 wrong usage,
3 no node could execute it (nothing was changed; retry),
4 outcome unknown (it may have been executed)."""


@click.group(
    cls=RootGroup,
    commands=LazyCommands(COMMANDS),
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(VERSION, prog_name="palisade")
def main() -> None:
    """Palisade: a replicated, revisioned metadata store.

    Start a cluster on this machine with `palisade up`; the other commands connect to it.
    """
