"""palisade ls."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import click

from palisade.base.key_text import key_text
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

    async def find(client: Any) -> tuple[int, list[str], bool]:
        shown = list[str]()
        revision, empty = 0, True
        async with session.notice_of(client) as erase:
            async for at, names in names_below(client, prefix, recursive):
                revision, empty = at, empty and not names
                part = [readable(name) for name in names]
                if session.as_json or session.as_csv:
                    shown += part
                elif part:
                    erase()
                    print("\n".join(part))
        return revision, shown, empty

    revision, shown, empty = session.call(find, notice=False)
    if empty:
        session.note_on_terminal(none_begins_with(prefix))
    if session.as_json or session.as_csv:
        session.rows({"revision": revision, "names": shown}, ["name"], [[name] for name in shown])


def none_begins_with(prefix: bytes) -> str:
    return f"no key begins with {key_text(prefix)}" if prefix else "there is no key"


async def names_below(client: Any, prefix: bytes, recursive: bool) -> AsyncIterator[tuple[int, list[bytes]]]:
    """(revision, the next names) at one revision. Keys below a name of this level are skipped without reading them."""
    start, end = prefix or FROM_KEY, prefix_end(prefix)
    revision, name = 0, None
    while True:
        page = await client.range(start, end, limit=PAGE, keys_only=True, revision=revision, exact_count=False)
        revision = revision or page.revision
        names = list[bytes]()
        for kv in page.kvs:
            if (own := kv.key if recursive else level_of(kv.key, prefix)) != name:
                names.append(name := own)
        yield revision, names
        if not (page.more and page.kvs):
            return
        last = page.kvs[-1].key
        inside = name != last or last.endswith(SEPARATOR)
        start = prefix_end(name) if name and inside and not recursive else last + b"\0"


def level_of(key: bytes, prefix: bytes) -> bytes:
    """The key, cut after the first separator that follows the prefix."""
    place = key.find(SEPARATOR, len(prefix))
    return key if place < 0 else key[: place + 1]
