"""palisade alarm list, disarm."""

from __future__ import annotations

import click

from palisade.cli.options import client_options
from palisade.cli.printing import print_json, print_rows
from palisade.cli.session import CliSession


@click.group()
def alarm() -> None:
    """Whether the store is full, and what to do about it."""


@alarm.command("list")
@client_options
def list_(session: CliSession) -> None:
    """Show the alarms that are on. While the store is full only reads, deletes, revokes and compaction are accepted."""
    status = session.call(lambda client: client.status())
    alarms = [{"alarm": each["alarm"], "text": each["text"]} for each in status["alarms"]]
    if session.as_json:
        print_json({"alarms": alarms, "size_bytes": status["size_bytes"], "quota_bytes": status["quota_bytes"]})
    elif alarms:
        print_rows(["alarm", "what it means"], [(each["alarm"], each["text"]) for each in alarms])
    else:
        print(f"no alarm: {status['size_bytes']:,} of {status['quota_bytes']:,} bytes are used")


@alarm.command()
@client_options
def disarm(session: CliSession) -> None:
    """Clear the quota alarm, so that writes are accepted again; refused while the store is above its quota.

    Make room first: delete keys, then compact. The alarm ends by itself once a twentieth of the quota is free.
    """
    result = session.call(lambda client: client.disarm_alarm())
    cleared = bool(result.count)
    text = "the quota alarm is cleared: writes are accepted again" if cleared else "there was no alarm"
    session.answer({"revision": result.revision, "cleared": cleared}, text)
