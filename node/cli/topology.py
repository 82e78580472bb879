"""palisade topology."""

from __future__ import annotations

from typing import Any

import click

from node.cli.options import client_options
from node.cli.printing import print_json, print_rows
from node.cli.session import Session


@click.command()
@client_options
def topology(session: Session) -> None:
    """Which nodes are there (physical), and which may serve (logical), as the node that is asked sees them.

    A node is in the physical topology as soon as the others have heard of it, and in the logical one when it was let in
    and has recovered: its standing is 'active' then, 'validated' before.
    """
    from node.topology.rows import HEADER, node_rows

    async def ask(client: Any) -> Any:
        return await client.topology()

    found = session.call(ask)
    if session.as_json:
        print_json(found)
    else:
        print_rows(HEADER, node_rows(found))
