"""palisade topology."""

from __future__ import annotations

import sys
from typing import Any

import click

from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.options import at_option, client_options
from palisade.cli.session import CliSession


@click.command()
@at_option
@client_options
def topology(session: CliSession, at: str | None) -> None:
    """List the nodes that exist and those that may serve.

    The physical and the logical topology, in the view of the queried node.
    A node enters the physical topology when the others discover it. It enters the logical one when it is admitted
    ('validated') and becomes 'active' when it has recovered.
    """
    from palisade.topology.table_rows import HEADER, copy_note, node_rows

    async def over_stream(client: Any) -> Any:
        return await client.topology()

    if at is None:
        found = session.call(over_stream)
    else:
        found = run_or_fail(session, ask(at, "/v1/topology", timeout_s=session.deadline_s), at)
    session.rows(found, HEADER, node_rows(found, separators=not session.as_csv))
    note = None if session.as_json else copy_note(found)
    if note is not None:
        print(note, file=sys.stderr)
