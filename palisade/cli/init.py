"""palisade init."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from palisade.base.http_request import HttpRequests, NoAnswer
from palisade.cli.credentials import headers
from palisade.cli.printing import print_json
from palisade.cli.session import REFUSED, UNAVAILABLE, CliSession, Failure

TIMEOUT_S = 20.0


@click.command()
@click.argument("members", nargs=-1, required=True)
@click.option(
    "--at", default="127.0.0.1:7401", show_default=True, metavar="HOST:PORT", help="HTTP address of one of them."
)
@click.option("--cancel", is_flag=True, help="Take back what has begun, as long as nothing is committed.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init(members: tuple[str, ...], at: str, cancel: bool, as_json: bool) -> None:
    """Make a cluster out of the nodes MEMBERS, which were started without --initial-cluster and --join.

    They find each other by --seeds. Repeating it changes nothing, and goes on with what was interrupted.
    Where users have to sign in, it needs PALISADE_JOIN_TOKEN, the one that the nodes have.

    \b
    palisade init n1 n2 n3 --at 127.0.0.1:7401
    """
    code, said = asyncio.run(ask(at, {"members": list(members), "cancel": cancel}))
    if code == 200:
        if as_json:
            print_json(said)
        else:
            print(f"{'cancelled' if cancel else 'initialized'}: {', '.join(said['members'])}")
        return
    refused = 400 <= code < 500
    failure = Failure(REFUSED if refused else UNAVAILABLE, said["code"], said["detail"], not refused)
    CliSession([], 0, as_json).fail(failure)


async def ask(at: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """(status, answer); 503 where nobody answers."""
    try:
        async with HttpRequests(headers(), timeout_s=TIMEOUT_S) as requests:
            answer = await requests.json(at, "/v1/cluster/init", "POST", body)
    except NoAnswer as error:
        return 503, {"code": "unavailable", "detail": f"{error}; start it, or give another --at"}
    return answer.status, {"code": "unavailable", "detail": str(answer.content), **answer.content}
