"""palisade lease: grant, keep-alive, revoke, timetolive, list."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from palisade.base.counted import counted
from palisade.cli.numbers import NumberCommand
from palisade.cli.options import client_options, read_lease, read_lease_time
from palisade.cli.printing import readable
from palisade.cli.session import CliSession
from palisade.metastore.results import LeaseResult
from palisade.wire import json_results as shapes


@click.group()
def lease() -> None:
    """Grant, renew, show and revoke leases.

    The keys of a lease are deleted, in one revision, when it expires or is revoked.
    """


@lease.command(cls=NumberCommand)
@click.argument("ttl_s", metavar="SECONDS", type=read_lease_time)
@click.option(
    "--id", "lease_id", type=read_lease, metavar="ID", help="Number of the lease.  [default: chosen by the store]"
)
@client_options
def grant(session: CliSession, ttl_s: float, lease_id: int | None) -> None:
    """Grant a lease and print its number.

    It expires after SECONDS without a keep-alive.

    \b
    id=$(palisade lease grant 30)
    palisade put /workers/w1 up --lease $id
    """
    result = session.call(lambda client: client.lease_grant(ttl_s, id=lease_id or 0))
    session.answer(shapes.lease_shape(result), str(result.id))


@lease.command("keep-alive", cls=NumberCommand)
@click.argument("lease_id", metavar="ID", type=read_lease)
@click.option("--once", is_flag=True, help="Renew once, then exit.")
@client_options
def keep_alive(session: CliSession, lease_id: int, once: bool) -> None:
    """Renew a lease until Ctrl-C.

    It is renewed at once, and then after each third of its time to live.
    """

    result: LeaseResult | None = None
    uncertain = False

    async def renew(client: Any) -> None:
        nonlocal result, uncertain
        while True:
            async with session.notice_of(client):
                try:
                    result = await client.lease_keep_alive(lease_id)
                except asyncio.CancelledError:
                    uncertain = client.has_uncertain_write
                    raise
            session.answer(shapes.lease_shape(result), f"lease {result.id}: {result.ttl_s:g} s")
            if once:
                return
            await asyncio.sleep(result.ttl_s / 3)

    def ended() -> str:
        if result is not None:
            return f"lease {result.id} is no longer renewed; it expires within {result.ttl_s:g} s"
        return f"lease {lease_id} {'may have been' if uncertain else 'was not'} renewed by this command"

    with session.note_after_ctrl_c(ended):
        session.call(renew, notice=False, warns_of_writes=False)


@lease.command(cls=NumberCommand)
@click.argument("lease_id", metavar="ID", type=read_lease)
@client_options
def revoke(session: CliSession, lease_id: int) -> None:
    """End a lease now and delete its keys."""
    result = session.call(lambda client: client.lease_revoke(lease_id))
    session.answer(shapes.lease_shape(result), f"revoked lease {result.id}, revision {result.revision}")


@lease.command(cls=NumberCommand)
@click.argument("lease_id", metavar="ID", type=read_lease)
@client_options
def timetolive(session: CliSession, lease_id: int) -> None:
    """Print the remaining time and the keys of a lease."""
    info = session.call(lambda client: client.lease_info(lease_id))
    lines = [f"lease {info.id}: {info.ttl_s:.12g} s left of {info.granted_ttl_s:g} s, {counted(len(info.keys), 'key')}"]
    session.answer(shapes.lease_info_shape(info), "\n".join(lines + [readable(key) for key in info.keys]))


@lease.command("list")
@client_options
def list_(session: CliSession) -> None:
    """List the leases that have not expired."""
    leases = session.call(lambda client: client.leases())
    shape = {"leases": [str(lease_id) for lease_id in leases]}
    session.rows(shape, ["lease"], [[lease_id] for lease_id in leases], none="there is no lease")
