"""Names the silent nodes whose leases the leader waits for, in the notice of a command that waits for the leader.

The leader's status has their names; the leader returns it from memory without waiting. The status is requested shortly
before the notice begins, then every `ASK_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from palisade.cli.waiting import silence_s
from palisade.fencing.former_leases import former_leases, is_former

if TYPE_CHECKING:
    from palisade.client import Client

ASK_S = 0.5
ASKED_BEFORE_S = 0.1
"""How long before the first notice the status is requested, so that the first notice has the reason."""

RECEIVING_BYTES = 100_000
"""A smaller part of an answer is not reported: the rest arrives at once."""


class NodeWaits:
    """`text`: what the leader waits for; None if it has not answered, or waits for no other node."""

    def __init__(self) -> None:
        self.text: str | None = None

    def reason(self, client: Client, why: str | None = None) -> str:
        """Why there is no answer yet: the reason of the client, else `why`, else how much of the answer has arrived.
        The client names a node that does not respond to pings; any other node may be executing a long request."""
        known = self.known(client, why)
        if known is not None or client.receiving_bytes < RECEIVING_BYTES:
            return known or f"{client.connected_to} has not finished the request"
        return f"receiving the answer of {client.connected_to}, {client.receiving_bytes / 1e6:,.1f} MB so far"

    def known(self, client: Client, why: str | None = None) -> str | None:
        """As `reason`; None if no cause is known. If a realtime writer waits for a data node, the cause of the cluster
        is added, because that node may wait for the cluster, without the parts that are in its own reason."""
        found = client.trouble or why or self.text
        if not (writer := client.writer_waits_for):
            return found
        return "; ".join([writer, *(part for part in (found or "").split("; ") if part not in writer)])

    async def follow(self, client: Client) -> None:
        """Updates `text` until it is cancelled, or the client is closed."""
        from palisade.base.errors import PalisadeError
        from palisade.client.client_closed import ClientClosed

        await asyncio.sleep(max(0.0, silence_s() - ASKED_BEFORE_S))
        while True:
            try:
                self.text = text_of(await client.status())
            except ClientClosed:
                return
            except (PalisadeError, OSError, TimeoutError):
                self.text = None
            await asyncio.sleep(ASK_S)


@contextlib.asynccontextmanager
async def followed(client: Client, waits: NodeWaits) -> AsyncIterator[None]:
    """Updates `waits` during the body."""
    asking = asyncio.ensure_future(waits.follow(client))
    try:
        yield
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def text_of(status: Mapping[str, Any]) -> str | None:
    """What the oldest unreleased change waits for, without the remaining time, which would change with each poll."""
    waits = (status.get("fencing") or {}).get("waits") or ()
    if not waits:
        return None
    waited_for = waits[0]["waits_for"]
    leased = [each["node"] for each in waited_for if each["until_ms"] is not None]
    nodes = sorted(name for name in leased if not is_former(name))
    nodes = [name for name in nodes if name != status["member"]] or nodes  # it has a lease of its own as well
    reasons = [f"because {each['reason']}" for each in waited_for if each["until_ms"] is None]
    former = [former_leases(name) for name in leased if is_former(name)]
    reasons = [*(f"for {leases}, until they expire" for leases in former), *reasons]
    if nodes:
        until = "it acknowledges a change or its lease ends"
        if len(nodes) > 1:
            until = "they acknowledge a change or their leases end"
        *others, last = nodes
        reasons = [f"for {', '.join(others)}{' and ' if others else ''}{last}, until {until}", *reasons]
    return f"{status['member']} waits {'; '.join(reasons)}" if reasons else None
