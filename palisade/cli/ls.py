"""palisade ls."""

from __future__ import annotations

from typing import Any

import click

from palisade.cli.options import client_options, read_bytes
from palisade.cli.printing import readable
from palisade.cli.session import CliSession
from palisade.metastore.requests import FROM_KEY, prefix_end

PAGE = 1_000
SEPARATOR = b"/"


@click.command()
@click.argument("prefix", type=read_bytes, default="")
@click.option("--recursive", "-r", is_flag=True, help="All keys, not only the next level.")
@client_options
def ls(session: CliSession, prefix: bytes, recursive: bool) -> None:
    """List the keys that begin with PREFIX, one level deep.

    A name that ends with / has keys below it.

    \b
    palisade ls /catalog/
    palisade ls /catalog/airlines/
    """

    async def find(client: Any) -> tuple[int, list[bytes]]:
        return await names_below(client, prefix, recursive)

    revision, names = session.call(find)
    shown = [readable(name) for name in names]
    if session.as_json or session.as_csv:
        session.rows({"revision": revision, "names": shown}, ["name"], [[name] for name in shown])
    else:
        for name in shown:
            print(name)


async def names_below(client: Any, prefix: bytes, recursive: bool) -> tuple[int, list[bytes]]:
    """(revision, names) at one revision. Keys below a name of this level are skipped without reading them."""
    start, end = prefix or FROM_KEY, prefix_end(prefix)
    revision = 0
    names: list[bytes] = []
    while True:
        page = await client.range(start, end, limit=PAGE, keys_only=True, revision=revision)
        revision = revision or page.revision
        for kv in page.kvs:
            name = kv.key if recursive else level_of(kv.key, prefix)
            if not names or names[-1] != name:
                names.append(name)
        if not page.more:
            return revision, names
        last = page.kvs[-1].key
        inside = names[-1] != last or last.endswith(SEPARATOR)
        start = prefix_end(names[-1]) if inside and not recursive else last + b"\0"


def level_of(key: bytes, prefix: bytes) -> bytes:
    """The key, cut after the first separator that follows the prefix."""
    place = key.find(SEPARATOR, len(prefix))
    return key if place < 0 else key[: place + 1]
