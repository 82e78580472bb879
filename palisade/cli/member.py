"""palisade member: list, add, promote, remove, transfer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

from palisade.cli.options import NAME, client_options, read_address
from palisade.cli.session import CliSession


@click.group()
def member() -> None:
    """List, add, promote and remove members of the Raft group.

    A voter counts for majorities. A learner replicates everything and does not vote.
    """


@member.command("list")
@client_options
def list_(session: CliSession) -> None:
    """List the members with their state as the leader sees it.

    Without a leader, the list is the view of the node that answers.
    """

    async def ask(client: Any) -> Any:
        return await client.members()

    members = session.call(ask)
    session.rows({"members": members}, HEADER, [member_row(each) for each in members])
    if not has_leader(members):
        session.note(NO_LEADER)


def has_leader(members: Iterable[dict[str, Any]]) -> bool:
    """Whether the node that returned the list knows a leader."""
    return any(each["leader"] for each in members)


NO_LEADER = (
    "no leader is known: this is the view of the node that answered, and it may be out of date. 'palisade status' "
    "shows each node"
)


HEADER = ["member", "role", "leader", "connected", "match", "http", "peer", "stream"]


def member_row(each: dict[str, Any]) -> list[str]:
    addresses = each["addresses"]
    return [
        each["id"],
        each["role"],
        "yes" if each["leader"] else "",
        "yes" if each["connected"] else "no",
        "-" if each["match_index"] is None else str(each["match_index"]),
        *(addresses.get(name, "-") for name in ("http", "peer", "stream")),
    ]


@member.command()
@click.argument("name", type=NAME)
@click.option("--incarnation", required=True, type=NAME, help="Random name of the new node's storage.")
@click.option("--peer", type=read_address, required=True, metavar="HOST:PORT", help="Peer address of the node.")
@click.option("--http", type=read_address, metavar="HOST:PORT", help="HTTP address of the node.")
@click.option("--stream", type=read_address, metavar="HOST:PORT", help="Stream address of the node.")
@click.option("--learner", is_flag=True, help="Keep it a learner; otherwise it becomes a voter once it has caught up.")
@client_options
def add(session: CliSession, name: str, incarnation: str, peer: str, learner: bool, **others: str | None) -> None:
    """Add the node NAME. Rarely needed: a node that is started with --join adds itself."""
    addresses = {"peer": peer} | {key: address for key, address in others.items() if address is not None}
    session.call(lambda client: client.member_add(name, incarnation, addresses, voter=not learner))
    then = "a learner" if learner else "a learner until it has caught up, then a voter"
    session.answer({"member": name}, f"added member {name}: {then}")


@member.command()
@click.argument("name", type=NAME)
@client_options
def promote(session: CliSession, name: str) -> None:
    """Make the learner NAME a voter. Refused while it has not caught up."""
    session.call(lambda client: client.member_promote(name))
    session.answer({"member": name}, f"promoted {name}: it is a voter")


@member.command()
@click.argument("name", type=NAME)
@client_options
def remove(session: CliSession, name: str) -> None:
    """Remove NAME from the group. It can return only with --join and an empty data folder."""
    session.call(lambda client: client.member_remove(name))
    session.answer({"member": name}, f"removed member {name}")


@member.command()
@click.argument("name", type=NAME, required=False)
@client_options
def transfer(session: CliSession, name: str | None) -> None:
    """Transfer the leadership to another voter.

    To NAME or, without NAME, to the voter with the newest log.
    """
    leader = session.call(lambda client: client.transfer(name))
    session.answer({"leader": leader}, f"{leader} is the leader")
