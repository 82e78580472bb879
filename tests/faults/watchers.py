"""Clients that watch one range, one after the other at different members, each from the revision that its predecessor
reached.

Their events are in the history. The last of them stays, so that a silent watch is detected, and not merely replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from palisade.client import Client
from palisade.metastore.errors import Compacted
from palisade.metastore.requests import WatchRequest, prefix_end
from tests.sim.history import History
from tests.sim.seen import Ending
from tests.sim.streaming import AT
from tests.support.processes import NodeProcess

WATCH_S = 6.0
"""How long one client watches."""
PROGRESS_S = 1.0
CONNECT_S = 5.0


class Watcher:
    """`name`: of its clients. `number`: where the first of them goes. `next_revision`: the first that they have not
    received."""

    def __init__(self, name: str, number: int, prefix: bytes, nodes: Sequence[NodeProcess], history: History) -> None:
        self.prefix = prefix
        self.next_revision = 0
        self._name, self._turn, self._nodes, self._history = name, number, nodes, history
        self._latest = self._before = 0
        self._stays = False
        self._limit: asyncio.Timeout | None = None

    async def run(self, start: int) -> None:
        """From that revision on, until it is cancelled."""
        self.next_revision = start
        while True:
            self._turn += 1
            client = f"{self._name}-{self._turn}"
            async with Client(self._endpoints(), timeout_s=CONNECT_S, client_id=client, follow_leader=False) as stream:
                await self._look(stream)

    def stay(self) -> None:
        """The current client stays."""
        self._stays = True
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(None)

    def silent(self, revision: int) -> str | None:
        """A message if it has not received all changes up to that revision."""
        if self.next_revision > revision:
            return None
        return (
            f"watch {self._latest} of {self._name}, which began at {self._first().id}, received nothing after "
            f"revision {self.next_revision - 1}, and {revision} is in its range"
        )

    def _first(self) -> NodeProcess:
        return self._nodes[self._turn % len(self._nodes)]

    def _endpoints(self) -> list[str]:
        """One member first; the others as alternatives."""
        place = self._turn % len(self._nodes)
        return [node.stream for node in (*self._nodes[place:], *self._nodes[:place])]

    async def _look(self, stream: Client) -> None:
        request = WatchRequest(self.prefix, prefix_end(self.prefix), self.next_revision, True)
        number = self._latest = self._history.watch(self._name, AT, request, self._before)
        ending, minimal, self._before = Ending.CANCELLED, 0, number
        watch = stream.watch(
            request.key, request.range_end, start_revision=request.start_revision, prev_kv=True, progress_s=PROGRESS_S
        )
        try:
            async with asyncio.timeout(None if self._stays else WATCH_S) as self._limit, watch:
                async for events in watch:
                    if events.events:
                        self._history.delivered(number, (events,))
                    else:
                        self._history.progressed(number, events.revision)
                    self.next_revision = watch.next_revision
        except TimeoutError:
            pass
        except Compacted as error:
            ending, minimal = Ending.COMPACTED, error.minimal_revision
            self.next_revision, self._before = minimal, 0
        finally:
            self._limit = None
        self._history.watch_ended(number, ending, minimal)
