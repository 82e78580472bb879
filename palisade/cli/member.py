"""palisade member: list, add, promote, remove, transfer."""

from __future__ import annotations

from typing import Any

import click

from palisade.base.address import Address, AddressError
from palisade.cli.options import client_options
from palisade.cli.printing import print_json, print_rows
from palisade.cli.session import CliSession


def read_address(text: str) -> str:
    try:
        return str(Address.parse(text))
    except AddressError as error:
        raise click.BadParameter(str(error)) from None


@click.group()
def member() -> None:
    """Members of the Raft group: voters, and learners that get everything but do not vote."""


@member.command("list")
@client_options
def list_(session: CliSession) -> None:
    """The members, and what the leader knows of them."""

    async def ask(client: Any) -> Any:
        return await client.members()

    members = session.call(ask)
    if session.as_json:
        print_json({"members": members})
    else:
        header = ["member", "role", "leader", "connected", "match", "peer", "http", "stream"]
        print_rows(header, [member_row(each) for each in members])


def member_row(each: dict[str, Any]) -> list[str]:
    addresses = each["addresses"]
    return [
        each["id"],
        each["role"],
        "yes" if each["leader"] else "",
        "yes" if each["connected"] else "no",
        "-" if each["match_index"] is None else str(each["match_index"]),
        *(addresses.get(name, "-") for name in ("peer", "http", "stream")),
    ]


@member.command()
@click.argument("name")
@click.option("--incarnation", required=True, help="The random name of its storage, which the new node made.")
@click.option("--peer", type=read_address, required=True, metavar="HOST:PORT", help="Its peer address.")
@click.option("--http", type=read_address, metavar="HOST:PORT", help="Its HTTP address.")
@click.option("--stream", type=read_address, metavar="HOST:PORT", help="Its stream address.")
@click.option("--learner", is_flag=True, help="Keep it a learner; otherwise it votes once it has caught up.")
@client_options
def add(session: CliSession, name: str, incarnation: str, peer: str, learner: bool, **others: str | None) -> None:
    """Add the node NAME. A node that is started with --join adds itself, so this is needed rarely."""
    addresses = {"peer": peer} | {key: address for key, address in others.items() if address is not None}
    session.call(lambda client: client.member_add(name, incarnation, addresses, voter=not learner))
    then = "a learner" if learner else "a learner until it has caught up, then a voter"
    session.answer({"member": name}, f"{name} is a member: {then}")


@member.command()
@click.argument("name")
@client_options
def promote(session: CliSession, name: str) -> None:
    """Make the learner NAME a voter. Refused while it has not caught up."""
    session.call(lambda client: client.member_promote(name))
    session.answer({"member": name}, f"{name} is a voter")


@member.command()
@click.argument("name")
@client_options
def remove(session: CliSession, name: str) -> None:
    """Remove NAME from the group. It comes back with --join and an empty data folder only."""
    session.call(lambda client: client.member_remove(name))
    session.answer({"member": name}, f"{name} is no member any more")


@member.command()
@click.argument("name", required=False)
@client_options
def transfer(session: CliSession, name: str | None) -> None:
    """Hand the leadership to NAME, or to the voter that is most up to date."""
    leader = session.call(lambda client: client.transfer(name))
    session.answer({"leader": leader}, f"{leader} leads now")
