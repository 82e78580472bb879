"""What may reach PySyncObj: its message handlers trust too much, so messages are screened first.

Followers. The library deletes everything behind `prevLogIdx`, matching or not (pysyncobj.md, fault 1). `screen_append`
compares the message with the log first. What matches is skipped; only entries from the first difference on are
delivered, so the library truncates at a true conflict alone, which by leader completeness lies behind the commit index.
The commit index moves at most to the last entry that the message covers: what lies behind it may be of an old leader.

Leaders. `screen_reply` lets an answer count only in the term that it was given in (fault 2), never moves nextIndex
below matchIndex + 1 or past the end of the log (fault 3, RATIS-1074), and holds an acknowledgement back until the
leader's own journal has synced as far, because the library counts the leader as one of the majority at once.
That a follower's match is unknown is a value of its own (`None`), which no arithmetic can take for an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raftgroup.errors import NodeFailed
from raftgroup.ports import Entry


class LogView(Protocol):
    """The part of a journal that the guard looks at."""

    @property
    def first(self) -> Entry: ...
    @property
    def last(self) -> Entry: ...
    def term_at(self, index: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Append:
    """append_entries: `entries` follow the entry (prev_index, prev_term); the leader has committed `commit`."""

    term: int
    commit: int
    prev_index: int
    prev_term: int
    entries: Sequence[Entry]

    @property
    def covers(self) -> int:
        """The last index that this message vouches for."""
        return self.entries[-1].index if self.entries else self.prev_index


@dataclass(frozen=True, slots=True)
class StaleTerm:
    """Of a leader of the past: tell it the term, deliver nothing."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The log does not hold what the message builds on: ask for `next_index`, nothing is appended."""

    next_index: int


@dataclass(frozen=True, slots=True)
class Matched:
    """The log holds all of it already: acknowledge up to `covers`, which may be committed up to `commit`."""

    covers: int
    commit: int


@dataclass(frozen=True, slots=True)
class Extend:
    """`append.entries` are new from the first to the last one, and follow on append.prev_index."""

    append: Append
    truncates: bool


def screen_append(message: Append, log: LogView, term: int, commit: int) -> StaleTerm | Missing | Matched | Extend:
    """What of an append_entries may be delivered to a node at `term` that has committed up to `commit`.

    Raises NodeFailed where the message contradicts a committed entry: one of the two has lost its history.
    """
    if message.term < term:
        return StaleTerm()
    if message.prev_index > log.last.index:
        return Missing(log.last.index + 1)
    if _differs(message.prev_index, message.prev_term, log):
        _refuse_divergence(message.prev_index, commit)
        return Missing(commit + 1)
    covered_commit = min(message.commit, message.covers)
    for position, entry in enumerate(message.entries):
        if entry.index > log.last.index or _differs(entry.index, entry.term, log):
            truncates = entry.index <= log.last.index
            if truncates:
                _refuse_divergence(entry.index, commit)
            return Extend(_tail(message, position, log, covered_commit), truncates)
    return Matched(message.covers, covered_commit)


def _differs(index: int, term: int, log: LogView) -> bool:
    """Below the base everything is committed, and what is committed is the same in every leader's log."""
    if index < log.first.index:
        return False
    return log.term_at(index) != term


def _tail(message: Append, position: int, log: LogView, commit: int) -> Append:
    entries = message.entries[position:]
    prev_index = entries[0].index - 1
    prev_term = log.term_at(prev_index)
    if prev_term is None:
        raise NodeFailed(f"the log has no entry {prev_index} although the one behind it was compared")
    return Append(message.term, commit, prev_index, prev_term, entries)


def _refuse_divergence(index: int, commit: int) -> None:
    if index <= commit:
        raise NodeFailed(
            f"the leader's log differs from this node's at index {index}, which this node has committed "
            f"(up to {commit}): one of them has lost data. Wipe this node and let it join again, after making sure "
            "that the other members agree with each other"
        )


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to an append: `success` acknowledges everything below `next_index`, else it asks for that index."""

    term: int
    next_index: int
    success: bool


@dataclass(frozen=True, slots=True)
class Drop:
    reason: str


@dataclass(frozen=True, slots=True)
class StepDown:
    """Somebody is in a later term."""

    term: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Deliver it again once the own journal has synced this index."""

    index: int


@dataclass(frozen=True, slots=True)
class Acknowledge:
    match: int


@dataclass(frozen=True, slots=True)
class Resend:
    """Send from this index on."""

    next_index: int


ReplyVerdict = Drop | StepDown | Hold | Acknowledge | Resend


def screen_reply(reply: Reply, *, term: int, match: int | None, last_index: int, synced_index: int) -> ReplyVerdict:
    """What an answer means to the leader of `term` whose log ends at `last_index` and is synced to `synced_index`.

    `match` is what the follower is known to hold, None while that is unknown.
    """
    if reply.term > term:
        return StepDown(reply.term)
    if reply.term < term:
        return Drop(f"an answer of term {reply.term} in term {term}")
    if not reply.success:
        floor = 1 if match is None else match + 1
        return Resend(min(max(reply.next_index, floor), last_index + 1))
    acknowledged = reply.next_index - 1
    if acknowledged > last_index:
        return Drop(f"acknowledges index {acknowledged} of a log that ends at {last_index}")
    return Hold(acknowledged) if acknowledged > synced_index else Acknowledge(acknowledged)
