"""A claim that is held while a command runs.

stderr shows what `lock` and `elect` wait for: the claim, the end of the command, or the release.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from palisade.cli.held_command import GRACE_S
from palisade.cli.node_waits import NodeWaits, followed
from palisade.cli.printing import readable
from palisade.cli.trouble_warning import warn_of_trouble
from palisade.client.lease import LeaseLost

if TYPE_CHECKING:
    from palisade.cli.session import CliSession
    from palisade.client import Client
    from palisade.client.claims import Claim

AT_ONCE = "Ctrl-C exits at once"
COMMANDS = {"lock": "lock", "leadership": "elect"}
SILENT_S = 0.3
"""A release that ends within this time is not shown."""


class HeldClaim:
    """`what`: lock or leadership."""

    def __init__(self, claim: Claim, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._claim, self._what, self._clock = claim, what, clock
        self._acquired = False
        self._ends_since: float | None = None
        self._releases_since: float | None = None

    @contextlib.asynccontextmanager
    async def by(self, session: CliSession, client: Client) -> AsyncIterator[None]:
        """Holds the claim during the body; the notice is erased before it. Raises LeaseLost, with the cause."""
        waits = NodeWaits()
        try:
            async with (
                session.notice(lambda: self.waits_for(waits, client)) as erase,
                contextlib.AsyncExitStack() as held,
            ):
                async with followed(client, waits):
                    await held.enter_async_context(self._claim)
                self._acquired, waits.text = True, None
                erase()
                async with self._warning(session, client):
                    yield
        except LeaseLost as error:
            if not self._acquired:
                raise
            ended = ", and the command was ended" if self._ends_since is not None else ""
            why = f"; {client.trouble}" if client.trouble else ""
            raise LeaseLost(f"the {self._what} was lost{ended}: {error}{why}") from error

    @contextlib.asynccontextmanager
    async def _warning(self, session: CliSession, client: Client) -> AsyncIterator[None]:
        """During the body, warns if the lease of the claim cannot be renewed; not with --json. Then notes the time at
        which the release begins."""
        texts = f"the lease of the {self._what} cannot be renewed", "the lease is renewed again"
        warning = asyncio.ensure_future(
            asyncio.Event().wait() if session.as_json else warn_of_trouble(client, COMMANDS[self._what], *texts)
        )
        try:
            yield
        finally:
            warning.cancel()
            self._releases_since = self._clock()

    def command_ends(self) -> None:
        """To be called when the command gets SIGTERM."""
        self._ends_since = self._clock()

    def waits_for(self, waits: NodeWaits, client: Client) -> str | None:
        """None while the claim is held."""
        now = self._clock()
        if self._claim.lease.closing:
            if self._releases_since is None:
                self._releases_since = now
            if now - self._releases_since < SILENT_S:
                return None
            return f"releasing the {self._what}; {AT_ONCE} ({waits.reason(client)})"
        if self._ends_since is not None:
            if now - self._ends_since < SILENT_S:
                return None
            return f"the command has not ended yet; SIGKILL follows {GRACE_S:g} s after SIGTERM; {AT_ONCE}"
        if self._acquired:
            return None
        before = self._claim.waits_for
        why = None if before is None else f"{readable(before)} is before this claim and is not released yet"
        return waits.reason(client, why)

    @property
    def acquired(self) -> bool:
        return self._acquired

    @property
    def not_released(self) -> str | None:
        """What to report after the end, if the claim still exists."""
        lease = self._claim.lease
        if lease.not_revoked is None or lease.is_lost:
            return None
        return (
            f"the {self._what} could not be released ({lease.not_revoked}): it expires with its lease, within "
            f"{lease.ttl_s:g} s, or if there is no majority now, within {lease.ttl_s:g} s after one is back"
        )
