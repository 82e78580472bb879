"""palisade fencing."""

from __future__ import annotations

import sys
from typing import Any

import click

from palisade.cli.http_request import ask, run_or_fail
from palisade.cli.member import NO_LEADER
from palisade.cli.options import at_option, client_options
from palisade.cli.printing import print_json
from palisade.cli.session import CliSession
from palisade.service.status import is_wait, wait_line


@click.command()
@at_option
@client_options
def fencing(session: CliSession, at: str | None) -> None:
    """List the nodes that may serve reads from their vaults.

    The view of the leader, with the changes that wait for their release.

    With --at: the view of that node, which may be of any kind.
    """
    if at is None:
        found = session.call(of_leader)
    else:
        found = run_or_fail(session, ask(at, "/v1/fencing", timeout_s=session.deadline_s), at)
    if session.as_json:
        print_json(found)
        return
    if at is None and found["leader"] is None:
        session.note(NO_LEADER)
    if not session.as_csv:
        print_own(found)
    leader = found["leader"] or {"holders": [], "waits": []}
    if found["leader"] is not None or session.as_csv:
        holders = sorted(leader["holders"], key=lambda each: str(each["node"]))
        session.rows(found, HEADER, [holder_row(each, separators=not session.as_csv) for each in holders])
    if session.as_csv or found["leader"] is None:
        return
    waits = [wait_line(wait) for wait in leader["waits"] if is_wait(wait)]
    print("\n".join(waits) or "no change waits for its release")


async def of_leader(client: Any) -> dict[str, Any]:
    """The view of the leader, to which the client connects; without a leader, that of another member."""
    found: dict[str, Any] = await client.fencing()
    return found


HEADER = ["holder", "incarnation", "staged", "behind", "last contact", "lease ends in", "reported", "state"]


def holder_row(each: dict[str, Any], separators: bool = True) -> list[str]:
    """`separators`: of thousands, for people."""
    heard, until = each["heard_ms"], each["until_ms"]
    state = "promised not to serve" if each["promised"] else "leaving" if each["leaving"] else "holds leases"
    return [
        each["node"],
        str(each["incarnation"] or "-"),
        *(f"{each[name]:,}" if separators else str(each[name]) for name in ("staged", "behind")),
        "never" if heard is None else f"{heard} ms ago",
        "unknown" if until is None else f"{until} ms",
        each.get("reported_state", each.get("said")) or "nothing",
        state,
    ]


def print_own(found: dict[str, Any]) -> None:
    lease = found["lease"]
    if lease is None:
        print(f"{found['node']}: its vault is not open", file=sys.stderr)
        return
    age, left = lease["lease_age_ms"], lease["lease_left_ms"]
    why = f", its lease is {age} ms old and ends in {left} ms" if lease["serves"] else f": {lease['why_not']}"
    facts = f"RR {lease['released']:,}, LV {lease['applied']:,}, term {lease['term']}, incarnation"
    print(f"{found['node']} is {lease['state']}{why}; {facts} {lease['incarnation']}")
