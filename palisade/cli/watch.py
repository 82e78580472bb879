"""palisade watch."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import click

from palisade.base.errors import PalisadeError
from palisade.cli.kv import end_of_range, first_key
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import client_options, read_bytes
from palisade.cli.printing import print_json, readable
from palisade.cli.session import CliSession
from palisade.cli.trouble_warning import warn_of_trouble
from palisade.cli.waiting import silence_s
from palisade.metastore.results import RevisionEvents
from palisade.wire import json_results as shapes


@click.command()
@click.argument("key", type=read_bytes)
@click.argument("end", type=read_bytes, default="")
@click.option("--prefix", is_flag=True, help="All keys that begin with KEY.")
@click.option("--start-revision", type=WholeNumber(0), default=0, help="First revision; 0: after the newest one.")
@click.option("--prev-kv", is_flag=True, help="Print the previous values.")
@click.option("--revisions", type=WholeNumber(1), help="Exit after the changes of this number of revisions.")
@client_options
def watch(
    session: CliSession, key: bytes, end: bytes, prefix: bool, start_revision: int, prev_kv: bool, revisions: int | None
) -> None:
    """Print every change of KEY, of a range, or of a prefix.

    Ends with Ctrl-C. With --json: one object per revision.

    \b
    palisade watch /catalog/ --prefix --start-revision 1
    """
    key, range_end = first_key(session, key, end, prefix, from_key=False), end_of_range(end, prefix)
    latest = 0

    async def follow(client: Any) -> None:
        nonlocal latest
        async with session.notice_of(client):
            await client.status()  # a watch waits without limit: fail in time if there is no cluster
        seen = 0
        watching = client.watch(key, range_end, prefix=prefix, start_revision=start_revision, prev_kv=prev_kv)
        async with watching as changes:
            warnings = [warn_of_trouble(changes), warn_of_future(client, start_revision)]
            tasks = [asyncio.create_task(each) for each in warnings]
            try:
                async for events in changes:
                    show(session, events)
                    latest = events.revision
                    seen += bool(events.events)
                    if revisions is not None and seen >= revisions:
                        return
            finally:
                for task in tasks:
                    task.cancel()

    def ended() -> str:
        return (
            f"watched up to revision {latest}; --start-revision {latest + 1} continues"
            if latest
            else "no change was received"
        )

    with session.note_after_ctrl_c(ended):
        session.call(follow, notice=False)


async def warn_of_future(client: Any, start_revision: int) -> None:
    """Prints once on stderr that the watch begins at a revision that does not exist yet, and is silent until then."""
    await asyncio.sleep(silence_s())
    with contextlib.suppress(PalisadeError):
        newest = (await client.status())["revision"]
        if newest + 1 < start_revision:
            text = (
                f"revision {start_revision:,} is in the future, the newest is {newest:,}; changes before "
                f"{start_revision:,} are not shown"
            )
            print(f"palisade watch: {text}", file=sys.stderr, flush=True)


def show(session: CliSession, events: RevisionEvents) -> None:
    if session.as_json:
        print_json(shapes.events_shape(events))
        return
    for event in events.events:
        before = f"\tbefore: {readable(event.prev_kv.value)}" if event.prev_kv else ""
        what = (
            f"delete\t{readable(event.kv.key)}"
            if event.delete
            else f"put\t{readable(event.kv.key)}\t{readable(event.kv.value)}"
        )
        print(f"{events.revision}\t{what}{before}", flush=True)
