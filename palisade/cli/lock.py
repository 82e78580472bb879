"""palisade lock, palisade elect: hold a lock or a leadership while a command runs, or until Ctrl-C (docs/locks.md)."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from palisade.base.interval import INTERVAL_S_MAX
from palisade.cli.numbers import Number
from palisade.cli.options import client_options, read_bytes, read_lease_time
from palisade.cli.printing import print_json, readable
from palisade.cli.session import INTERRUPTED, CliSession
from palisade.cli.trouble_warning import warn_of_trouble
from palisade.wire import json_results as shapes

if TYPE_CHECKING:
    from palisade.client.claims import Claim
    from palisade.metastore.results import KeyValue

NOT_RELEASED = "not-released"
ttl_option = click.option(
    "--ttl", "ttl_s", type=read_lease_time, default="10", show_default=True, metavar="SECONDS",
    help="Time after which the next claimant takes over if the holder dies.",
)  # fmt: skip
wait_option = click.option(
    "--wait", "wait_s", type=Number(0, INTERVAL_S_MAX), metavar="SECONDS",
    help="Give up with exit code 1 after this time in the queue; 0 does not wait. Default: wait without limit. Until "
    "the claim is in the queue, which needs a leader, --timeout applies instead, with exit code 3.",
)  # fmt: skip


def read_name(text: str) -> bytes:
    if not text:
        raise click.BadParameter("the name is empty; give one, such as /locks/compaction")
    return read_bytes(text)


@click.command()
@click.argument("name", type=read_name)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@ttl_option
@wait_option
@client_options
def lock(session: CliSession, name: bytes, command: tuple[str, ...], ttl_s: float, wait_s: float | None) -> None:
    """Run COMMAND while holding the lock NAME.

    The exit code is that of COMMAND. Without COMMAND the lock is held until Ctrl-C.

    COMMAND gets PALISADE_LOCK_KEY and PALISADE_LOCK_TOKEN, the fencing token. If the lock is lost, COMMAND gets
    SIGTERM and the exit code is 3.

    \b
    palisade lock /locks/compaction -- ./compact.sh --all
    """
    hold(session, lambda client: client.lock(name, ttl_s=ttl_s, timeout_s=wait_s), command, "PALISADE_LOCK")


class ElectCommand(click.Command):
    """Refuses a missing VALUE before `--`; click would take the first word of COMMAND as VALUE."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args and not ctx.resilient_parsing:
            at = args.index("--")
            given, _, _ = self.make_parser(ctx).parse_args(args[:at])
            other_use = given.get("listen") or not {*ctx.help_option_names}.isdisjoint(args[:at])
            lacks_value = isinstance(given.get("name"), str) and not isinstance(given.get("value"), str)
            # A first word that begins with - is a VALUE: after `--` it is not an option.
            if lacks_value and not other_use and args[at + 1 :] and not args[at + 1].startswith("-"):
                raise click.UsageError(
                    "VALUE is missing: it stands before --, as in 'palisade elect /leader/ingest n1 -- ./ingest.sh'",
                    ctx,
                )
        return super().parse_args(ctx, args)


@click.command(cls=ElectCommand)
@click.argument("name", type=read_name)
@click.argument("value", type=read_bytes, required=False)
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.option("--listen", "-l", is_flag=True, help="Do not campaign; print the leader now and after each change.")
@ttl_option
@wait_option
@client_options
def elect(
    session: CliSession,
    name: bytes,
    value: bytes | None,
    command: tuple[str, ...],
    listen: bool,
    ttl_s: float,
    wait_s: float | None,
) -> None:
    """Campaign for the leadership NAME with VALUE.

    Runs COMMAND while leading; without COMMAND it leads until Ctrl-C.

    COMMAND gets PALISADE_ELECT_KEY and PALISADE_ELECT_TOKEN, the fencing token. If the leadership is lost, COMMAND
    gets SIGTERM and the exit code is 3.

    \b
    palisade elect /leader/ingest n1 -- ./ingest.sh
    palisade elect /leader/ingest --listen
    """
    if listen == (value is not None):
        raise click.UsageError("give either VALUE or --listen")
    if value is None:
        with session.note_after_ctrl_c(
            lambda: "stopped listening; run the command again to continue, beginning with the current leader"
        ):
            session.call(lambda client: follow(session, client, name), notice=False)
        return
    hold(session, lambda client: client.campaign(name, value, ttl_s=ttl_s, timeout_s=wait_s), command, "PALISADE_ELECT")


def hold(session: CliSession, claim_of: Any, command: tuple[str, ...], names: str) -> None:
    """Exits with the code of the command, or by the end of the claim. `names`: prefix of its environment variables."""
    from palisade.cli.held_claim import HeldClaim
    from palisade.cli.held_command import run_held
    from palisade.cli.stop_signals import Stopped, stoppable

    what = "lock" if names == "PALISADE_LOCK" else "leadership"
    claims = list[HeldClaim]()

    async def work(client: Any) -> int:
        claim: Claim = claim_of(client)
        held = HeldClaim(claim, what)
        claims.append(held)
        async with held.by(session, client):
            if command:
                key = claim.key.decode("utf-8", "surrogateescape")
                environment = {f"{names}_KEY": key, f"{names}_TOKEN": str(claim.token)}
                return await run_held(command, environment, held.command_ends)
            shape = {**shapes.text_field("key", claim.key), "token": claim.token, "lease": str(claim.lease.id)}
            session.answer(shape, f"{readable(claim.key)}\ttoken {claim.token}")
            sys.stdout.flush()
            await asyncio.Event().wait()
            return 0

    async def run(client: Any) -> int:
        try:
            return await stoppable(lambda: work(client))
        except Stopped as stopped:
            return 128 + stopped.number

    def remark() -> str | None:
        if any(held.not_released for held in claims):
            return None  # reported in the `finally` below
        if not any(held.acquired for held in claims):
            return f"the {what} was not acquired"
        return None if command else f"the {what} is released"

    failed = True
    try:
        with session.note_after_ctrl_c(remark):
            code = session.call(run, notice=False, warns_of_writes=False)
        failed = False
    except SystemExit as ended:
        failed = ended.code != INTERRUPTED
        raise
    finally:
        for text in filter(None, (held.not_released for held in claims)):
            report(session, text, failed)
    sys.exit(code)


def report(session: CliSession, not_released: str, failed: bool) -> None:
    """Prints on stderr that the claim was not released. `failed`: `lock` or `elect` has printed an error of its own;
    then, with --json, nothing is printed, because stderr may have only one object. A nonzero exit code of COMMAND is
    not such an error."""
    if not session.as_json:
        session.note(not_released)
    elif not failed:
        print(json.dumps({"error": {"code": NOT_RELEASED, "message": not_released, "retry": False}}), file=sys.stderr)


async def follow(session: CliSession, client: Any, name: bytes) -> None:
    async with session.notice_of(client):
        await client.ping()  # an observation waits for a cluster without limit, so a missing cluster is reported here
    warning = asyncio.ensure_future(warn_of_trouble(client, "elect"))
    try:
        async for leader in client.observe(name):
            show(session, leader)
    finally:
        warning.cancel()


def show(session: CliSession, leader: KeyValue | None) -> None:
    if session.as_json:
        print_json({"leader": None if leader is None else shapes.key_value(leader)})
    elif leader is None:
        print("no leader")
    else:
        print(f"{readable(leader.key)}\t{readable(leader.value)}\ttoken {leader.create_revision}")
    sys.stdout.flush()
