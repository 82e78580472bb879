"""Commands on their way through the log: proposed, packed into one entry, decoded once, applied, ended.

A proposal has a deadline and ends in exactly one of three ways (pysyncobj.md, fault 13). Applied, with its result.
Refused: it is in no log and never will be, so it may be proposed again. Outcome unknown: it was in a log, or sent to
the leader, and no reply arrived.

An entry of commands is one byte for its kind, then [stamp, [command, ...]]. A command is bytes; only the state machine
interprets the stamp.
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

import msgpack

from palisade.raftgroup.errors import NO_MAJORITY, NodeFailed, OutcomeUnknown, RaftError, Unavailable
from palisade.raftgroup.ports import BATCH, MEMBERSHIP, NO_OP, Entry

log = logging.getLogger(__name__)

BATCH_COMMANDS_MAX = 4096
BATCH_BYTES_MAX = 4 << 20
DECODED_BYTES_MAX = 8 << 20
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

    Proposals with the same timeout are due in order of arrival, because the clock is monotonic. Thus there is one queue
    per timeout, and ended proposals are removed at its front.
    """

    def __init__(self) -> None:
        self._queue: deque[Proposal] = deque()
        self._places = count()
        self._by_timeout: dict[float, deque[Proposal]] = {}

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, proposal: Proposal, now: float) -> None:
        """Its commands go into one entry of the log. It ends once. Raises TypeError for a command that is not bytes:
        followers would refuse the entry forever."""
        kinds = set(map(type, proposal.commands))
        if not kinds <= {bytes}:
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"a command is bytes, and one of these is not: {found[:200]}")
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
        """End proposals past their deadline. Call it often: it also removes ended ones, with their commands."""
        for timeout_s, waiting in list(self._by_timeout.items()):
            while waiting and (waiting[0].is_ended or waiting[0].deadline <= now):
                end_late(waiting.popleft())
            if not waiting:
                del self._by_timeout[timeout_s]
        while self._queue and self._queue[0].is_ended:
            self._queue.popleft()

    def fail(self, error: Callable[[], RaftError]) -> None:
        """This node stops: queued proposals end with `error`; the outcome of the others is unknown."""
        while self._by_timeout:
            _, waiting = self._by_timeout.popitem()
            for proposal in waiting:
                proposal.end(_lost_from_sight() if proposal.sent else error())
        self._queue.clear()


Batch = tuple[Any, Sequence[bytes]]
"""A stamp and commands: the content of one entry."""


def batch_entry(stamp: Any, commands: Sequence[bytes]) -> bytes:
    packed: bytes = msgpack.packb([stamp, commands])
    return BATCH + packed


def batch_in(entry: bytes) -> Batch | None:
    """None for an entry of a kind without commands. Raises ValueError for an invalid one."""
    kind = entry[:1]
    if kind in (NO_OP, MEMBERSHIP):
        return None
    if kind != BATCH:
        raise ValueError(f"no kind of entry begins with {kind!r}")
    try:
        batch = msgpack.unpackb(memoryview(entry)[1:], strict_map_key=False)
    except (ValueError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise ValueError(str(error)[:200] or type(error).__name__) from error
    if type(batch) is not list or len(batch) != 2:
        raise ValueError("it is not a stamp and a list of commands")
    stamp, commands = batch
    if type(commands) is not list or not set(map(type, commands)) <= {bytes}:
        raise ValueError("its commands are no list of bytes")
    return stamp, commands


class UnappliedEntries:
    """Entries that this node has not applied yet: their decoded batches, and the proposals that wait for them.

    A batch is decoded at most once: never on the leader that encoded it, on a follower when it checks the append.
    `decoded_bytes_max` bounds the size of the entries whose batches are kept. A batch that is not kept, for example
    after a restart, is decoded when it is applied.

    The applied entry decides about proposals. It is the proposed one, and they end with their results; or it is the
    entry of another leader, and they are displaced: then they are in no log and may be proposed again. Several terms
    may have proposed an entry at one index.
    """

    def __init__(self, decoded_bytes_max: int = DECODED_BYTES_MAX) -> None:
        self._decoded: dict[int, tuple[Entry, Batch]] = {}
        self._decoded_bytes = 0
        self._decoded_bytes_max = decoded_bytes_max
        self._proposed: dict[int, list[tuple[int, Sequence[Proposal]]]] = {}
        """By the index of their entry, each with the term of its entry."""
        self._displaced: list[Proposal] = []

    @property
    def decoded(self) -> int:
        """Number of batches kept."""
        return len(self._decoded)

    def keep(self, entry: Entry, batch: Batch, proposals: Sequence[Proposal] = ()) -> None:
        """`batch`: the decoded entry. `proposals`: those in it, on the leader that has appended it. If there is no room
        for all batches, the oldest ones are kept: they are applied first."""
        index, term = entry.index, entry.term
        if proposals:
            self._proposed.setdefault(index, []).append((term, proposals))
        if index not in self._decoded and self._decoded_bytes + len(entry.command) <= self._decoded_bytes_max:
            self._decoded[index] = (entry, batch)
            self._decoded_bytes += len(entry.command)

    def keep_all(self, entries: Sequence[Entry], batches: Sequence[Batch | None]) -> None:
        """Those of `entries` that have a batch."""
        for entry, batch in zip(entries, batches, strict=True):
            if batch is not None:
                self.keep(entry, batch)

    def take(self, entry: Entry) -> Batch | None:
        """The batch of this entry, which is about to be applied. None for an entry without commands. Raises NodeFailed
        for one that can't be read."""
        kept = self._decoded.pop(entry.index, None)
        if kept is not None:
            self._decoded_bytes -= len(kept[0].command)
            if kept[0].term == entry.term:
                return kept[1]
        try:
            return batch_in(entry.command)
        except ValueError as error:
            raise NodeFailed(
                f"entry {entry.index} of term {entry.term} is committed and not decodable: {error}. The leader of that "
                "term was faulty, or of another release: run the same release of palisade on all nodes; if that does "
                "not help, restore a backup"
            ) from error

    def applied(self, index: int, term: int, results: Sequence[Any]) -> None:
        """The entry (index, term) was applied; `results` has one for each of its commands."""
        for proposed_in, proposals in self._proposed.pop(index, ()):
            if proposed_in == term:
                end_applied(proposals, index, term, results)
            else:
                self._displaced.extend(proposals)

    def take_displaced(self) -> list[Proposal]:
        """The proposals whose entries another leader has replaced."""
        displaced, self._displaced = self._displaced, []
        return displaced

    def truncated_from(self, index: int) -> None:
        """The log was truncated. Its proposals end later: another member may still hold the entry, and commit it."""
        for at in [at for at in self._decoded if at >= index]:
            entry, _ = self._decoded.pop(at)
            self._decoded_bytes -= len(entry.command)

    def replaced_to(self, index: int) -> None:
        """A snapshot has replaced the log up to `index`: the results of these entries are not known here."""
        self._decoded.clear()
        self._decoded_bytes = 0
        self._proposed = {at: batches for at, batches in self._proposed.items() if at > index}


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
        proposal.end(Unavailable(NO_MAJORITY))
