"""Proposals on their way: each has a deadline and comes to exactly one of three ends (pysyncobj.md, fault 13).

Applied, with its result. Refused: it is in no log and never will be, so it may simply be proposed again. Outcome
unknown: it was in a log, or on its way to the leader, and nobody said what became of it.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

from raftgroup.errors import OutcomeUnknown, RaftError, Unavailable

log = logging.getLogger(__name__)

BATCH_COMMANDS_MAX = 4096
BATCH_BYTES_MAX = 4 << 20


class Applied(NamedTuple):
    """A command was applied at (index, term); `result` is what the state machine returned."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    result: Any


class Proposal:
    """One command and whoever waits for it. `sent`: it has left the queue, so its outcome may be unknown."""

    __slots__ = ("command", "deadline", "done", "sent")

    def __init__(self, command: bytes, deadline: float, done: Callable[[Applied | RaftError], None]) -> None:
        self.command = command
        self.deadline = deadline
        self.done: Callable[[Applied | RaftError], None] | None = done
        self.sent = False

    def end(self, outcome: Applied | RaftError) -> None:
        """Tell whoever waits, once. A listener that throws harms nobody else: the command is applied all the same."""
        done, self.done = self.done, None
        if done is None:
            return
        try:
            done(outcome)
        except Exception:
            log.exception("whoever waited for a proposal failed when it ended")


def into_future(future: asyncio.Future[Applied]) -> Callable[[Applied | RaftError], None]:
    """Ends a proposal in a future, which may have been cancelled meanwhile."""

    def done(outcome: Applied | RaftError) -> None:
        if future.done():
            return
        if isinstance(outcome, RaftError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    return done


class Proposals:
    """What waits to be proposed, in order, and what waits for its deadline."""

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()
        self._by_deadline: list[tuple[float, int, Proposal]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, proposal: Proposal) -> None:
        self._queue.append(proposal)
        heapq.heappush(self._by_deadline, (proposal.deadline, next(self._order), proposal))

    def put_back(self, proposals: Iterable[Proposal]) -> None:
        """They were refused before they reached any log: first in line again, until their deadline."""
        again = [proposal for proposal in proposals if proposal.done is not None]
        for proposal in again:
            proposal.sent = False
        self._queue.extendleft(reversed(again))

    def take(self) -> list[Proposal]:
        """The next batch, marked as sent."""
        batch: list[Proposal] = []
        size = 0
        queue = self._queue
        while queue and len(batch) < BATCH_COMMANDS_MAX and size < BATCH_BYTES_MAX:
            proposal = queue.popleft()
            if proposal.done is not None:
                proposal.sent = True
                batch.append(proposal)
                size += len(proposal.command)
        return batch

    def expire(self, now: float) -> None:
        """End what is past its deadline."""
        waiting = self._by_deadline
        while waiting and (waiting[0][2].done is None or waiting[0][0] <= now):
            end_late(heapq.heappop(waiting)[2])

    def fail(self, error: Callable[[], RaftError]) -> None:
        """This node stops: what is still in the queue ends with `error`; of the rest nobody here will hear."""
        for _, _, proposal in self._by_deadline:
            proposal.end(_lost_from_sight() if proposal.sent else error())
        self._by_deadline.clear()
        self._queue.clear()


def _lost_from_sight() -> OutcomeUnknown:
    return OutcomeUnknown(
        "this node stopped after the command was proposed: it may be applied or not, now or later; read before you "
        "decide, or retry it with a request id"
    )


def end_late(proposal: Proposal) -> None:
    """Its deadline has passed."""
    if proposal.done is None:
        return
    if proposal.sent:
        proposal.end(
            OutcomeUnknown(
                "the deadline passed after the command was proposed: it may be applied or not, now or later; "
                "read before you decide, or retry it with a request id"
            )
        )
    else:
        proposal.end(
            Unavailable("no leader with a majority was found before the deadline; nothing was done, try again")
        )
