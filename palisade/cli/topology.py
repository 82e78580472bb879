"""palisade topology."""

from __future__ import annotations

import sys
from typing import Any

import click

from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.options import at_option, client_options
from palisade.cli.printing import print_json, print_rows
from palisade.cli.session import CliSession


@click.command()
@at_option
@client_options
def topology(session: CliSession, at: str | None) -> None:
    """Which nodes are there (physical), and which may serve (logical), as the node that is asked sees them.

    A node is in the physical topology as soon as the others have heard of it, and in the logical one when it was let in
    and has recovered: its standing is 'active' then, 'validated' before.
    """
    from palisade.topology.table_rows import HEADER, copy_note, node_rows

    async def over_stream(client: Any) -> Any:
        return await client.topology()

    found = session.call(over_stream) if at is None else run_or_fail(session, ask(at, "/v1/topology"))
    if session.as_json:
        print_json(found)
    else:
        print_rows(HEADER, node_rows(found))
        note = copy_note(found)
        if note is not None:
            print(note, file=sys.stderr)
