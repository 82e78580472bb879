"""Proposals in progress: each has a deadline and ends in exactly one of three ways (pysyncobj.md, fault 13).

Applied, with its result. Refused: it is in no log and never will be, so it may be proposed again. Outcome unknown: it
was in a log, or sent to the leader, and no reply arrived.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from palisade.raftgroup.command_entries import check_commands
from palisade.raftgroup.errors import OutcomeUnknown, RaftError, Unavailable
from palisade.raftgroup.ports import Entry

log = logging.getLogger(__name__)

BATCH_COMMANDS_MAX = 4096
BATCH_BYTES_MAX = 4 << 20
_PLACE = attrgetter("place")


class Applied(NamedTuple):
    """Commands were applied at (index, term); `results` has the state machine's result for each. `here`: by this node;
    otherwise by the leader to which they were forwarded, and this node may not have applied them yet."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    term: int
    results: Sequence[Any]
    here: bool = False

    @property
    def result(self) -> Any:
        """Of a proposal of one command."""
        return self.results[0]


class Proposal(ABC):
    """Commands that end together. A subclass implements `ended`, the reaction to that end.

    `timeout_s`: their maximum time. `weight`: as how many commands they count for the size of an entry, for commands
    that take the time of many. `deadline` and `place` (the order of arrival) are set when the proposal is queued.
    `sent`: it has left the queue, so its outcome may be unknown. `is_ended`: it has ended.
    """

    __slots__ = ("commands", "deadline", "is_ended", "place", "sent", "timeout_s", "weight")

    def __init__(self, commands: Sequence[bytes], timeout_s: float, weight: int | None = None) -> None:
        self.commands = commands
        self.timeout_s = timeout_s
        self.weight = len(commands) if weight is None else weight
        self.deadline = 0.0
        self.place = 0
        self.sent = False
        self.is_ended = False

    def end(self, outcome: Applied | RaftError) -> None:
        """Once; a second end is ignored. An error in `ended` is logged: it does not change the outcome."""
        if self.is_ended:
            return
        self.is_ended = True
        try:
            self.ended(outcome)
        except Exception:
            log.exception("handling the end of a proposal failed")

    @abstractmethod
    def ended(self, outcome: Applied | RaftError) -> None:
        """Called once."""


class CallbackProposal(Proposal):
    """Calls `done` with its end."""

    __slots__ = ("_done",)

    def __init__(
        self,
        commands: Sequence[bytes],
        done: Callable[[Applied | RaftError], None],
        timeout_s: float = 5.0,
        weight: int | None = None,
    ) -> None:
        super().__init__(commands, timeout_s, weight)
        self._done = done

    def ended(self, outcome: Applied | RaftError) -> None:
        self._done(outcome)


class AwaitedProposal(Proposal):
    """Sets the result of a future, which may be cancelled before that."""

    __slots__ = ("future",)

    def __init__(self, commands: Sequence[bytes], future: asyncio.Future[Applied], timeout_s: float) -> None:
        super().__init__(commands, timeout_s)
        self.future = future

    def ended(self, outcome: Applied | RaftError) -> None:
        if self.future.done():
            return
        if isinstance(outcome, RaftError):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Proposals:
    """Proposals that wait to be proposed, in order, and those that wait for their deadline.

    Proposals with the same timeout are due in order of arrival, because the clock is monotonic. So there is one queue
    per timeout, and ended proposals are removed at its front.
    """

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()
        self._places = count()
        self._by_timeout: dict[float, deque[Proposal]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, proposal: Proposal, now: float) -> None:
        """Its commands go into one entry of the log. It ends once. Raises TypeError for a command that is not bytes."""
        check_commands(proposal.commands)
        timeout_s = proposal.timeout_s
        proposal.deadline, proposal.place = now + timeout_s, next(self._places)
        self._queue.append(proposal)
        waiting = self._by_timeout.get(timeout_s)
        if waiting is None:
            waiting = self._by_timeout[timeout_s] = deque()
        waiting.append(proposal)

    def put_back(self, proposals: Iterable[Proposal]) -> None:
        """Queue again, until their deadline, proposals that are in no log. They keep their places, whatever the order
        in which several batches are put back."""
        again = sorted((each for each in proposals if not each.is_ended), key=_PLACE)
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
            if not proposal.is_ended:
                proposal.sent = True
                batch.append(proposal)
                weight += proposal.weight
                size += sum(map(len, proposal.commands))
        return batch

    def expire(self, now: float) -> None:
        """End proposals past their deadline. Call it often: it also removes ended ones."""
        for timeout_s, waiting in list(self._by_timeout.items()):
            while waiting and (waiting[0].is_ended or waiting[0].deadline <= now):
                end_late(waiting.popleft())
            if not waiting:
                del self._by_timeout[timeout_s]

    def fail(self, error: Callable[[], RaftError]) -> None:
        """This node stops: queued proposals end with `error`; the outcome of the others is unknown."""
        while self._by_timeout:
            _, waiting = self._by_timeout.popitem()
            for proposal in waiting:
                proposal.end(_lost_from_sight() if proposal.sent else error())
        self._queue.clear()


class ProposedEntries:
    """The entries that this node has proposed as a leader, until an entry at their index is applied.

    The applied entry decides: it is the proposed one, and its proposals end with their results; or it is the entry of
    another leader, and its proposals are displaced. Then they are in no log and may be proposed again. Several terms
    may have proposed an entry at one index.
    """

    def __init__(self) -> None:
        self._batches: dict[int, list[tuple[int, Sequence[Proposal]]]] = {}
        """By the index of their entry, each with the term of its entry."""
        self._displaced: list[Proposal] = []

    def add(self, entry: Entry, batch: Sequence[Proposal]) -> None:
        """The commands of `batch` were appended as `entry`."""
        self._batches.setdefault(entry.index, []).append((entry.term, batch))

    def applied(self, index: int, term: int, results: Sequence[Any]) -> None:
        """The entry (index, term) was applied; `results` has one for each of its commands."""
        for proposed_in, batch in self._batches.pop(index, ()):
            if proposed_in == term:
                end_applied(batch, index, term, results)
            else:
                self._displaced.extend(batch)

    def forget_to(self, index: int) -> None:
        """A snapshot has replaced the log up to `index`: the results of these entries are not known here."""
        self._batches = {at: batches for at, batches in self._batches.items() if at > index}

    def take_displaced(self) -> list[Proposal]:
        """The proposals whose entries another leader has replaced."""
        displaced, self._displaced = self._displaced, []
        return displaced


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
        proposal.end(Applied(index, term, results[first:stop], here=True))
        first = stop


def end_late(proposal: Proposal) -> None:
    """Its deadline has passed."""
    if proposal.is_ended:
        return
    if proposal.sent:
        proposal.end(
            OutcomeUnknown(
                "the deadline passed after the command was proposed: it may be applied or not, now or later; "
                "read before you decide, or retry it with a request id"
            )
        )
    else:
        proposal.end(Unavailable("no leader with a majority was found before the deadline; nothing was changed, retry"))
