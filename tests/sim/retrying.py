"""Clients that repeat acknowledged requests with the same ids after a restore (docs/operations.md, "Retries").

A write from before the backup gets its first result; the history does not record it, since it took effect in another
one. A write from after the backup is lost, so it is executed, and recorded like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from palisade.service.callers import UNRESTRICTED
from tests.sim.backups import Base
from tests.sim.checkers.durable import revisions_of
from tests.sim.clients import TIMEOUT_S, Client, way_to
from tests.sim.history import History
from tests.sim.outcomes import EXPECTED
from tests.sim.restoring import NAME
from tests.sim.seen import Ok, Operation, Path, Refused, Why

MANY = 3
"""The last ones of each kind."""
TRIES = 8
PAUSE_S = 0.5


class Retrier:
    """`ended`: the history that ended with the disaster. If the backup is older than an earlier restore, writes that
    were lost in that one and repeated since then get their results (restores 81)."""

    def __init__(self, client: Client, base: Base, ended: History) -> None:
        self._client, self._world, self._base = client, client.world, base
        kept = {each.request_id: each for each in answered(base.before) if revision_of(each) <= base.kept}
        lost = [each for each in answered(ended) if revision_of(each) > base.kept and each.request_id not in kept]
        self._kept, self._lost = list(kept.values())[-MANY:], lost[-MANY:]

    async def run(self) -> None:
        for operation in self._kept:
            await self._answered_as_before(operation)
        for operation in self._lost:
            await self._executed(operation)

    async def _answered_as_before(self, operation: Operation) -> None:
        for _ in range(TRIES):
            host = self._world.chance.choice(self._world.members)
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    result = await self._world.ask(
                        self._client.process,
                        self._client.name,
                        host.http,
                        lambda node: node.key_values.write(
                            operation.request, operation.request_id, caller=UNRESTRICTED
                        ),
                    )
            except (*EXPECTED, ConnectionError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._world.count("retry over a restore: kept")
            if result != operation.result:
                self._world.fail(
                    NAME,
                    f"operation {operation.number} of {operation.client} was answered {operation.result}, which "
                    f"is kept with all up to {self._base.kept}, and is answered {result} after it",
                )
            return

    async def _executed(self, operation: Operation) -> None:
        """A write from after the backup must not get an earlier result: that would be of a lower revision."""
        for attempt in range(1, TRIES + 1):
            host = self._world.chance.choice(self._world.members)
            outcome = await self._client.ask(
                host,
                way_to(host),
                operation.request,
                lambda node: node.key_values.write(operation.request, operation.request_id, caller=UNRESTRICTED),
                operation.request_id,
                attempt,
            )
            if isinstance(outcome, Ok):
                self._world.count("retry over a restore: lost")
                return
            if isinstance(outcome, Refused) and outcome.why is Why.REJECTED:
                return
            await asyncio.sleep(PAUSE_S)


def answered(history: History) -> Iterator[Operation]:
    """Writes with an id and a known revision, in the order in which they began."""
    for operation in history.operations():
        by_member = operation.path in (Path.LEADER, Path.MEMBER) and operation.request_id is not None
        if by_member and isinstance(operation.outcome, Ok) and any(revisions_of(operation)):
            yield operation


def revision_of(operation: Operation) -> int:
    return next(revisions_of(operation))
