"""palisade topology."""

from __future__ import annotations

import sys
from typing import Any

import click

from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.member import NO_LEADER, has_leader
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

    if at is None:
        found, leaderless = session.call(over_stream)
    else:
        found, leaderless = run_or_fail(session, over_http(at, session.deadline_s), at)
    session.rows(found, HEADER, node_rows(found, separators=not session.as_csv))
    note = None if session.as_json else copy_note(found)
    if note is not None:
        print(note, file=sys.stderr)
    if leaderless:
        session.note(NO_LEADER)


async def over_stream(client: Any) -> tuple[dict[str, Any], bool]:
    """The topology, and whether the node knows no leader: then its logical topology may be out of date."""
    return await client.topology(), not has_leader(await client.members())


async def over_http(at: str, timeout_s: float) -> tuple[dict[str, Any], bool]:
    """As `over_stream`. Only a member follows a leader. Raises NoAnswer, RequestRefused, OtherCluster."""
    found: dict[str, Any] = await ask(at, "/v1/topology", timeout_s=timeout_s)
    status = await ask(at, "/v1/status", timeout_s=timeout_s) if found["logical"] else {}
    return found, "leader" in status and status["leader"] is None
