"""palisade region list, set, change, delete."""

from __future__ import annotations

from typing import Any

import click

from palisade.cli.options import client_options
from palisade.cli.printing import print_json, print_rows
from palisade.cli.session import CliSession

MODES = ("strict", "eventual")
POLICIES = ("fail_closed", "refetch", "deny", "safe_default")


@click.group()
def region() -> None:
    """Strict prefixes: a write below one is acknowledged only after no node can serve the old value any more."""


@region.command("list")
@client_options
def list_(session: CliSession) -> None:
    """Show every region: its prefix, its mode, and what a reader does that must not answer (its policy)."""
    found = session.call(lambda client: client.regions())
    if session.as_json:
        print_json(found)
        return
    header = ["name", "prefix", "mode", "policy", "default", "built in"]
    print_rows(header, [row(each) for each in found["regions"]])
    for problem in found["problems"]:
        click.echo(problem, err=True)


def row(each: dict[str, Any]) -> list[str]:
    default = text(each, "default") if each["policy"] == "safe_default" else "-"
    return [
        each["name"],
        text(each, "prefix"),
        each["mode"],
        each["policy"],
        default,
        "yes" if each["built_in"] else "no",
    ]


def text(shape: dict[str, Any], name: str) -> str:
    return str(shape[name]) if name in shape else f"base64:{shape[f'{name}_base64']}"


@region.command("set")
@click.argument("name")
@click.argument("prefix")
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="fail_closed",
    show_default=True,
    help="What a read gets while the vault must not be trusted: an error, the quorum's word, a no, or the default.",
)
@click.option("--default", "default", default="", help="Of safe_default: the value that does no harm.")
@client_options
def set_(session: CliSession, name: str, prefix: str, mode: str, policy: str, default: str) -> None:
    """Make the region NAME of all keys that begin with PREFIX, or change it. Done when every node treats them so.

    Of several regions the one with the longest prefix counts. A strict write is answered once no node can show what it
    replaced, so it waits for one that does not answer, up to about 3.3 seconds.
    """
    from palisade.vault.regions import Mode, Policy, Region, pack_region

    made = Region(name, prefix.encode(), Mode(mode), Policy(policy), default.encode())
    revision = session.call(lambda client: client.region_set(name, pack_region(made)))
    session.answer(
        {"revision": revision, "name": name}, f"region {name}: {prefix} is {mode}, {policy}; revision {revision}"
    )


@region.command()
@click.argument("name")
@click.option("--prefix", help="Another prefix.")
@click.option("--mode", type=click.Choice(MODES))
@click.option("--policy", type=click.Choice(POLICIES), help="What a read gets while the vault must not be trusted.")
@click.option("--default", "default", help="Of safe_default: the value that does no harm.")
@client_options
def change(session: CliSession, name: str, **given: str | None) -> None:
    """Change what is given of the region NAME; the rest stays. Done when every node treats its keys so."""
    fields: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise click.UsageError("give --prefix, --mode, --policy or --default")
    shown = ", ".join(f"{field} {value}" for field, value in fields.items())
    sent = {field: value.encode() if field in ("prefix", "default") else value for field, value in fields.items()}
    revision = session.call(lambda client: client.region_change(name, sent))
    session.answer({"revision": revision, "name": name}, f"region {name}: {shown}; revision {revision}")


@region.command()
@click.argument("name")
@client_options
def delete(session: CliSession, name: str) -> None:
    """Forget the region NAME: its keys belong to the next shorter prefix, or to none, and are eventual then."""
    revision = session.call(lambda client: client.region_delete(name))
    session.answer({"revision": revision, "deleted": 1}, f"region {name} is deleted, revision {revision}")
