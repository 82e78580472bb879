"""palisade region list, set, change, delete."""

from __future__ import annotations

from typing import Any

import click

from palisade.cli.options import NAME, client_options
from palisade.cli.session import CliSession

MODES = ("strict", "eventual")
POLICIES = ("fail_closed", "refetch", "deny", "safe_default")


@click.group()
def region() -> None:
    """List and change regions: strict and eventual prefixes.

    A write below a strict prefix is acknowledged only after no node can serve the old value any more.
    """


@region.command("list")
@client_options
def list_(session: CliSession) -> None:
    """List the regions with prefix, mode and policy.

    The policy applies to reads while the vault must not be trusted.
    """
    found = session.call(lambda client: client.regions())
    header = ["name", "prefix", "mode", "policy", "default", "built in"]
    session.rows(found, header, [row(each) for each in found["regions"]], cut="default")
    for problem in () if session.as_json else found["problems"]:
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
@click.argument("name", type=NAME)
@click.argument("prefix")
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True, help="Mode of its keys.")
@click.option(
    "--policy",
    type=click.Choice(POLICIES),
    default="fail_closed",
    show_default=True,
    help="Response to a read while the vault must not be trusted: an error (fail_closed); a read of the cluster, else "
    "an error (refetch) or a refusal (deny); the value of --default (safe_default).",
)
@click.option("--default", "default", help="The value of the policy safe_default, which requires it.")
@client_options
def set_(session: CliSession, name: str, prefix: str, mode: str, policy: str, default: str | None) -> None:
    """Create or replace the region NAME of a prefix.

    It covers all keys that begin with PREFIX; the region with the longest prefix applies. The command returns when the
    region is effective on every node. A strict write is acknowledged only after no node can serve the old value; a
    node that does not answer delays it by up to about 3.3 seconds.
    """
    from palisade.vault.regions import Mode, Policy, Region, pack_region

    if policy == Policy.SAFE_DEFAULT and default is None:
        raise click.UsageError(
            "the policy safe_default needs --default, the value that a fenced node returns; it may be ''"
        )
    made = Region(name, prefix.encode(), Mode(mode), Policy(policy), (default or "").encode())
    revision = session.call(lambda client: client.region_set(name, pack_region(made)))
    keys = f"{prefix} is" if prefix else "all keys are"
    session.answer({"revision": revision, "name": name}, f"region {name}: {keys} {mode}, {policy}; revision {revision}")


@region.command()
@click.argument("name", type=NAME)
@click.option("--prefix", help="New prefix.")
@click.option("--mode", type=click.Choice(MODES), help="New mode.")
@click.option("--policy", type=click.Choice(POLICIES), help="New policy for reads while the vault must not be trusted.")
@click.option("--default", "default", help="New value of the policy safe_default.")
@client_options
def change(session: CliSession, name: str, **given: str | None) -> None:
    """Change only the given properties of the region NAME. Returns when the change is effective on every node."""
    fields: dict[str, Any] = {field: value for field, value in given.items() if value is not None}
    if not fields:
        raise click.UsageError("give --prefix, --mode, --policy or --default")
    shown = ", ".join(f"{field} {value}" for field, value in fields.items())
    if fields.get("prefix") == "":
        shown = shown.replace("prefix ", "prefix '' (all keys)", 1)
    sent = {field: value.encode() if field in ("prefix", "default") else value for field, value in fields.items()}
    revision = session.call(lambda client: client.region_change(name, sent))
    session.answer({"revision": revision, "name": name}, f"region {name}: {shown}; revision {revision}")


@region.command()
@click.argument("name", type=NAME)
@client_options
def delete(session: CliSession, name: str) -> None:
    """Delete the region NAME. Its keys then belong to the region with the next shorter prefix, or are eventual."""
    revision = session.call(lambda client: client.region_delete(name))
    session.answer({"revision": revision, "deleted": 1}, f"deleted region {name}, revision {revision}")
