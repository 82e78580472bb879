"""Whoever was answered before a restore and asks the same again behind it, with the same ids (docs/cli.md, "Retries").

A write of before the backup gets its first answer; the history says nothing of that one, since it took effect in
another. A write of after the backup is lost, so it is executed, and recorded as any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from palisade.service.callers import EVERYBODY
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
    """`ended`: the history that ended with the disaster. Of a backup that is older than a restore, what was lost in
    that one and sent again since then is kept again (restores 81)."""

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
                        lambda node: node.key_values.write(operation.request, operation.request_id, caller=EVERYBODY),
                    )
            except (*EXPECTED, ConnectionError, TimeoutError):
                await asyncio.sleep(PAUSE_S)
                continue
            self._world.count("retry over a restore: kept")
            if result != operation.result:
                self._world.fail(
                    NAME,
                    f"operation {operation.number} of {operation.client} was answered {operation.result}, which "
                    f"is kept with all up to {self._base.kept}, and is answered {result} behind it",
                )
            return

    async def _executed(self, operation: Operation) -> None:
        """One that came after the backup must not have an answer of before: that would be of a revision below."""
        for attempt in range(1, TRIES + 1):
            host = self._world.chance.choice(self._world.members)
            outcome = await self._client.ask(
                host,
                way_to(host),
                operation.request,
                lambda node: node.key_values.write(operation.request, operation.request_id, caller=EVERYBODY),
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
    """Writes with an id whose revision was told, in the order in which they began."""
    for operation in history.operations():
        by_member = operation.path in (Path.LEADER, Path.MEMBER) and operation.request_id is not None
        if by_member and isinstance(operation.outcome, Ok) and any(revisions_of(operation)):
            yield operation


def revision_of(operation: Operation) -> int:
    return next(revisions_of(operation))
