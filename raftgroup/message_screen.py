"""Which appends may reach PySyncObj: its message handlers do not verify enough, so `Replica` screens appends. Pure.

`read_batches` drops an append that no log can contain. An unreadable entry would be acknowledged, and would stop every
node that applies it, again at each start. An entry with a lower term than the entry before it is in no leader's log
(Raft, section 5.3), and the journal stops the node for it. No leader of this release sends either.

`screen_append` compares the append with the log. The library deletes everything after `prevLogIdx`, matching or not
(pysyncobj.md, fault 1). Here matching entries are skipped, and only entries from the first difference on are delivered,
so the library truncates only at a true conflict, which by leader completeness lies after the commit index. The commit
index moves at most to the last entry that the message covers: entries after that may be of an old leader.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from palisade.raftgroup.errors import NodeFailed
from palisade.raftgroup.membership_entries import membership_in
from palisade.raftgroup.ports import MEMBERSHIP, Entry
from palisade.raftgroup.proposals import Batch, batch_in


class LogView(Protocol):
    """The part of a journal that the screen needs."""

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
        """The last index that this message confirms."""
        return self.entries[-1].index if self.entries else self.prev_index


@dataclass(frozen=True, slots=True)
class StaleTerm:
    """Of an earlier term: reply with the present term, deliver nothing."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The log does not contain the entry that the message follows: request `next_index`, append nothing."""

    next_index: int


@dataclass(frozen=True, slots=True)
class Matched:
    """The log already contains all entries: acknowledge up to `covers`, which may be committed up to `commit`."""

    covers: int
    commit: int


@dataclass(frozen=True, slots=True)
class Extend:
    """All of `append.entries` are new, and follow append.prev_index."""

    append: Append
    truncates: bool


class UnsoundAppend(Exception):
    """No leader of this release sends it; the text gives the reason in one line."""


def read_batches(message: Append) -> list[Batch | None]:
    """The batch of each entry, None for an entry without commands. Raises UnsoundAppend."""
    before = message.prev_term
    for entry in message.entries:
        if entry.term < before:
            raise UnsoundAppend(
                f"its terms go backwards: entry {entry.index} of term {entry.term} follows one of term {before}"
            )
        before = entry.term
    if message.term < before:
        raise UnsoundAppend(
            f"its terms go backwards: it is of term {message.term}, and entry {message.covers} of term {before}"
        )
    return [_readable(entry) for entry in message.entries]


def _readable(entry: Entry) -> Batch | None:
    try:
        if entry.command[:1] == MEMBERSHIP:
            membership_in(entry.command)
        return batch_in(entry.command)
    except ValueError as error:
        raise UnsoundAppend(f"entry {entry.index} of term {entry.term} can't be read: {error}") from error


def screen_append(message: Append, log: LogView, term: int, commit: int) -> StaleTerm | Missing | Matched | Extend:
    """The part of an append that may be delivered to a node at `term` that has committed up to `commit`.

    Raises NodeFailed if the message contradicts a committed entry: one of the two nodes has lost its history.
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
    """Whether the log has another entry there. Below the base everything is committed, and committed entries are the
    same in every leader's log."""
    if index < log.first.index:
        return False
    return log.term_at(index) != term


def _tail(message: Append, position: int, log: LogView, commit: int) -> Append:
    entries = message.entries[position:]
    prev_index = entries[0].index - 1
    prev_term = log.term_at(prev_index)
    if prev_term is None:
        raise NodeFailed(f"the log has no entry {prev_index} although the next entry was compared")
    return Append(message.term, commit, prev_index, prev_term, entries)


def _refuse_divergence(index: int, commit: int) -> None:
    if index <= commit:
        raise NodeFailed(
            f"the leader's log differs from this node's at index {index}, which this node has committed "
            f"(up to {commit}): one of them has lost data. Wipe this node and let it join again, after making sure "
            "that the other members agree with each other"
        )
