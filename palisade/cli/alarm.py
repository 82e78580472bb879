"""palisade alarm list, disarm."""

from __future__ import annotations

import click

from palisade.cli.member import NO_LEADER
from palisade.cli.options import client_options
from palisade.cli.session import CliSession


@click.group()
def alarm() -> None:
    """Show and clear the quota alarm of a full store."""


@alarm.command("list")
@client_options
def list_(session: CliSession) -> None:
    """List the active alarms. A full store accepts only reads, deletes, lease revokes and compaction.

    Without a leader, the list is the view of the node that answers.
    """
    status = session.call(lambda client: client.status())
    if status["leader"] is None:
        session.note(NO_LEADER)
    alarms = [{"alarm": each["alarm"], "text": each["text"]} for each in status["alarms"]]
    if not (alarms or session.as_json or session.as_csv):
        print(f"no alarm: {status['size_bytes']:,} of {status['quota_bytes']:,} bytes are used")
        return
    shape = {"alarms": alarms, "size_bytes": status["size_bytes"], "quota_bytes": status["quota_bytes"]}
    session.rows(shape, ["alarm", "text"], [(each["alarm"], each["text"]) for each in alarms], wraps=["text"])


@alarm.command()
@client_options
def disarm(session: CliSession) -> None:
    """Clear the quota alarm, so that writes are accepted again.

    Refused while the store is above its quota. Free space first: delete keys, then compact. The alarm is cleared
    automatically once 5 % of the quota is free.
    """
    result = session.call(lambda client: client.disarm_alarm())
    cleared = bool(result.count)
    text = "cleared the quota alarm: writes are accepted again" if cleared else "there was no alarm"
    session.answer({"revision": result.revision, "cleared": cleared}, text)
