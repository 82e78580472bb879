"""Commits as the members report them: a watch of all keys at each of them. They must agree, revision by revision, must
not omit one, and must not fall silent without a fault."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from palisade.client import Client, OutcomeUnknown, Unavailable
from palisade.metastore.errors import Compacted
from palisade.metastore.results import RangeResult, RevisionEvents
from palisade.raftgroup.errors import RaftError
from tests.support.processes import NodeProcess

EVERYTHING = b"\0"
TIMEOUT_S = 10.0
LOOK_S = 0.05


class Witnesses:
    """`async with Witnesses(members) as witnesses:`. `first`: the first revision that they report."""

    def __init__(self, members: Sequence[NodeProcess]) -> None:
        self.first = 0
        self.revisions: dict[int, RevisionEvents] = {}
        self.disagreement: list[str] = []
        self._members = members
        self._next: dict[str, int] = {}
        self._reporters: dict[int, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Witnesses:
        async with Client([node.stream for node in self._members], timeout_s=TIMEOUT_S) as client:
            self.first = (await client.range(EVERYTHING, EVERYTHING, count_only=True)).revision
        self._next = {node.id: self.first for node in self._members}
        self._tasks = [asyncio.create_task(self._listen(node)) for node in self._members]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception):
                raise found

    async def _listen(self, node: NodeProcess) -> None:
        """Until it is cancelled. A watch that is behind the compacted past continues at its end."""
        async with Client([node.stream], follow_leader=False, timeout_s=TIMEOUT_S) as client:
            while True:
                try:
                    async with client.watch(EVERYTHING, EVERYTHING, start_revision=self._next[node.id]) as watch:
                        async for events in watch:
                            self.report(node.id, events)
                except Compacted as error:
                    if error.minimal_revision <= self._next[node.id]:
                        self.disagreement.append(f"{node.id} has {self._next[node.id]}, and refuses it: {error}")
                        return
                    self._next[node.id] = error.minimal_revision

    def report(self, by: str, events: RevisionEvents) -> None:
        expected, revision = self._next.setdefault(by, self.first), events.revision
        if revision != expected:
            self.disagreement.append(f"{by} reports revision {revision} where {expected} is the next")
        self._next[by] = revision + 1
        known = self.revisions.setdefault(revision, events)
        reporter = self._reporters.setdefault(revision, by)
        if known != events:
            self.disagreement.append(f"revision {revision} is {known} at {reporter}, and {events} at {by}")

    @property
    def newest(self) -> int:
        """The newest revision reported by any of them."""
        return max(self.revisions, default=self.first)

    def silent(self, revision: int) -> list[str]:
        """The members that have not reported all changes up to that revision, as text."""
        return [
            f"{member} has reported nothing after revision {behind - 1}, and {revision} is the newest"
            for member, behind in self._next.items()
            if behind <= revision
        ]

    async def have_reported(self, revision: int, within_s: float) -> bool:
        """Whether one member has reported all changes up to that revision, in time."""
        try:
            async with asyncio.timeout(within_s):
                while max(self._next.values(), default=0) <= revision:
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return False
        return True

    async def finals(self, start: bytes, end: bytes) -> dict[str, RangeResult]:
        """The current keys of each member that responds."""

        async def final(node: NodeProcess) -> RangeResult | None:
            async with Client([node.stream], follow_leader=False, timeout_s=TIMEOUT_S) as client:
                try:
                    return await client.range(start, end)
                except (Unavailable, OutcomeUnknown, RaftError):
                    return None

        found = await asyncio.gather(*map(final, self._members))
        return {node.id: each for node, each in zip(self._members, found, strict=True) if each is not None}
