"""Proposals on their way: each has a deadline and comes to exactly one of three ends (pysyncobj.md, fault 13).

Applied, with its result. Refused: it is in no log and never will be, so it may simply be proposed again. Outcome
unknown: it was in a log, or on its way to the leader, and nobody said what became of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from raftgroup.batch_entries import check_commands
from raftgroup.errors import OutcomeUnknown, RaftError, Unavailable

log = logging.getLogger(__name__)

BATCH_COMMANDS_MAX = 4096
BATCH_BYTES_MAX = 4 << 20
_PLACE = attrgetter("place")


class Applied(NamedTuple):
    """Commands were applied at (index, term); `results` is what the state machine returned for each of them."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: int
    results: Sequence[Any]

    @property
    def result(self) -> Any:
        """Of a proposal of one command."""
        return self.results[0]


Done = Callable[[Applied | RaftError], None]


class Proposal:
    """Commands that come to one end together, and whoever waits for it.

    `sent`: it has left the queue, so its outcome may be unknown. `weight`: as how many commands they count. `place`: in
    the order in which they came.
    """

    __slots__ = ("commands", "deadline", "done", "place", "sent", "weight")

    def __init__(self, commands: Sequence[bytes], deadline: float, done: Done, weight: int = 1, place: int = 0) -> None:
        self.commands = commands
        self.place = place
        self.weight = weight
        self.deadline = deadline
        self.done: Done | None = done
        self.sent = False

    def end(self, outcome: Applied | RaftError) -> None:
        """Tell whoever waits, once. A listener that throws harms nobody else: the commands are applied all the same."""
        done, self.done = self.done, None
        if done is None:
            return
        try:
            done(outcome)
        except Exception:
            log.exception("whoever waited for a proposal failed when it ended")


def into_future(future: asyncio.Future[Applied]) -> Done:
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
    """What waits to be proposed, in order, and what waits for its deadline.

    Proposals of one timeout are due in the order in which they came, since the clock never goes back. So there is a
    queue per timeout, and what has ended is let go of at its front: no more is kept than is under way.
    """

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()
        self._places = count()
        self._by_timeout: dict[float, deque[Proposal]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(
        self, commands: Sequence[bytes], done: Done, *, now: float, timeout_s: float, weight: int | None = None
    ) -> None:
        """They go into one entry of the log. `done` is called once, with what they came to.

        `weight`: as how many they count for the size of an entry, where it is not their number. Raises TypeError for
        what is no command.
        """
        check_commands(commands)
        counts = len(commands) if weight is None else weight
        proposal = Proposal(commands, now + timeout_s, done, counts, next(self._places))
        self._queue.append(proposal)
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = deque()
        waiting.append(proposal)

    def put_back(self, proposals: Iterable[Proposal]) -> None:
        """They were refused before they reached any log: in line again, before all that came later, until their
        deadline. Whoever is told of several batches may be told in any order."""
        again = sorted((each for each in proposals if each.done is not None), key=_PLACE)
        for proposal in again:
            proposal.sent = False
        if again:
            self._queue = deque(merge(again, self._queue, key=_PLACE))

    def take(self) -> list[Proposal]:
        """The next batch, marked as sent."""
        batch: list[Proposal] = []
        weight = size = 0
        queue = self._queue
        while queue and weight < BATCH_COMMANDS_MAX and size < BATCH_BYTES_MAX:
            proposal = queue.popleft()
            if proposal.done is not None:
                proposal.sent = True
                batch.append(proposal)
                weight += proposal.weight
                size += sum(map(len, proposal.commands))
        return batch

    def expire(self, now: float) -> None:
        """End what is past its deadline. Call it often: it also lets go of what has ended."""
        for timeout_s, waiting in list(self._by_timeout.items()):
            while waiting and (waiting[0].done is None or waiting[0].deadline <= now):
                end_late(waiting.popleft())
            if not waiting:
                del self._by_timeout[timeout_s]

    def fail(self, error: Callable[[], RaftError]) -> None:
        """This node stops: what is still in the queue ends with `error`; of the rest nobody here will hear."""
        while self._by_timeout:
            _, waiting = self._by_timeout.popitem()
            for proposal in waiting:
                proposal.end(_lost_from_sight() if proposal.sent else error())
        self._queue.clear()


def _lost_from_sight() -> OutcomeUnknown:
    return OutcomeUnknown(
        "this node stopped after the command was proposed: it may be applied or not, now or later; read before you "
        "decide, or retry it with a request id"
    )


def end_applied(batch: Iterable[Proposal], index: int, term: int, results: Sequence[Any]) -> None:
    """Their commands went into one entry, one after the other; `results` has one for each command."""
    first = 0
    for proposal in batch:
        stop = first + len(proposal.commands)
        proposal.end(Applied(index, term, results[first:stop]))
        first = stop


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
