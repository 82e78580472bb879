"""palisade watch."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from palisade.cli.kv import end_of_range
from palisade.cli.numbers import WholeNumber
from palisade.cli.options import client_options, read_bytes
from palisade.cli.printing import print_json, readable
from palisade.cli.session import CliSession
from palisade.cli.trouble_warning import warn_of_trouble
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
    range_end = end_of_range(end, prefix)
    latest = 0

    async def follow(client: Any) -> None:
        nonlocal latest
        async with session.notice_of(client):
            await client.status()  # a watch waits without limit: fail in time if there is no cluster
        seen = 0
        watching = client.watch(key, range_end, prefix=prefix, start_revision=start_revision, prev_kv=prev_kv)
        async with watching as changes:
            warning = asyncio.ensure_future(warn_of_trouble(changes))
            try:
                async for events in changes:
                    show(session, events)
                    latest = events.revision
                    seen += bool(events.events)
                    if revisions is not None and seen >= revisions:
                        return
            finally:
                warning.cancel()

    def ended() -> str:
        return (
            f"watched up to revision {latest}; --start-revision {latest + 1} continues"
            if latest
            else "no change was received"
        )

    with session.note_after_ctrl_c(ended):
        session.call(follow, notice=False)


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
