"""What the leader sends to each follower, and when.

Appends are pipelined: sent entries count as received (the library's nextIndex) until the follower answers otherwise. A
broken connection changes nothing (RATIS-1074): after it an empty append asks the follower whether it holds the sent
entries, and only its own answer moves nextIndex back, never below what it has acknowledged. A snapshot is sent only if
the follower requests an index that the log no longer has.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from palisade.raftgroup.library import Engine
from palisade.raftgroup.messages import MessageKind
from palisade.raftgroup.ports import Clock, Entry, Journal
from palisade.raftgroup.timing import RaftTiming

APPEND_BYTES_MAX = 1 << 20
APPEND_ENTRIES_MAX = 256
READ_ENTRIES = 16
"""Entries read from the journal at a time. An entry is a batch, which may have megabytes; entries beyond
APPEND_BYTES_MAX would be discarded."""
WINDOW_BYTES = 16 << 20


@dataclass(slots=True)
class _Follower:
    """The appends in progress to one follower. `in_flight`: (last index, bytes) of the unanswered ones.

    An unreachable follower gets only heartbeats until it connects again (`forget`)."""

    in_flight: deque[tuple[int, int]] = field(default_factory=deque)
    in_flight_bytes: int = 0
    sent_commit: int = 0
    resent_at: float = 0.0
    wants_snapshot: bool = False
    reachable: bool = True

    def forget(self) -> None:
        self.in_flight.clear()
        self.in_flight_bytes = 0
        self.sent_commit = 0


class Replication:
    """`send(member, kind, body)` returns False if the member is unreachable."""

    def __init__(
        self, engine: Engine, journal: Journal, clock: Clock, timing: RaftTiming, send: Callable[[str, int, Any], bool]
    ) -> None:
        self._engine = engine
        self._journal = journal
        self._clock = clock
        self._timing = timing
        self._send = send
        self._followers: dict[str, _Follower] = {}
        self._heartbeat_due = 0.0
        self._notice_due: float | None = None
        self.append_retries: Counter[str] = Counter()
        """By member: how often it lacked entries that had been sent."""
        self.snapshots_sent: Counter[str] = Counter()

    def begin_term(self) -> None:
        self._followers.clear()
        self._heartbeat_due = 0.0

    def forget(self, member: str) -> None:
        """The connection broke, or the member was replaced: messages in progress may be lost."""
        self._followers.pop(member, None)

    @property
    def due(self) -> float:
        """The time when something must be sent even without an event."""
        return self._heartbeat_due if self._notice_due is None else min(self._heartbeat_due, self._notice_due)

    def beat_now(self) -> None:
        """Make the next round a heartbeat: a reader waits for a majority to confirm the leader."""
        self._heartbeat_due = 0.0

    def send_commit_now(self) -> None:
        """A reader waits until a follower has applied the committed entries: the next round does not wait for new
        entries.
        """
        if self._notice_due is not None:
            self._notice_due = 0.0

    def wanting_snapshot(self) -> list[str]:
        return [member for member, follower in self._followers.items() if follower.wants_snapshot]

    def send_to_all(self, members: list[str]) -> None:
        """New entries to all; a heartbeat where due; the commit index after a short delay.

        The commit index waits a little for the next entries to carry it.
        """
        now = self._clock.now()
        beat = now >= self._heartbeat_due
        if beat:
            self._heartbeat_due = now + self._timing.heartbeat_s
        notice = self._notice_due is not None and now >= self._notice_due
        if beat or notice:
            self._notice_due = None
        unsent = False
        for member in members:
            unsent |= self._send_to(member, now, beat=beat, notice=notice)
        if unsent and self._notice_due is None:
            self._notice_due = now + self._timing.commit_notice_s

    def send_to(self, member: str) -> None:
        """The window of one follower has opened."""
        self._send_to(member, self._clock.now(), beat=False, notice=False)

    def probe(self, member: str) -> None:
        """A follower is reachable again: ask at once what it holds."""
        self._send_to(member, self._clock.now(), beat=True, notice=False)

    def send_last(self, member: str, next_index: int) -> None:
        """To a member whose removal is committed: the log from `next_index`, with the entry that removed it. Sent once;
        a member that misses it is refused by the others."""
        if next_index > self._journal.first.index:
            self._append(member, _Follower(), self._clock.now(), next_index - 1, self._entries_from(next_index))

    def acknowledged(self, member: str, match: int) -> None:
        follower = self._follower(member)
        follower.wants_snapshot = False
        while follower.in_flight and follower.in_flight[0][0] <= match:
            follower.in_flight_bytes -= follower.in_flight.popleft()[1]
        if self._engine.next_index(member) <= self._journal.last.index:
            self.send_to(member)

    def resend(self, member: str, next_index: int, asked_at: float) -> None:
        """The follower lacks sent entries. Each append after a gap gets such an answer: resend only once."""
        follower = self._follower(member)
        if asked_at < follower.resent_at:
            return
        follower.forget()
        follower.resent_at = self._clock.now()
        self.append_retries[member] += 1
        self._engine.set_next_index(member, next_index)
        self.send_to(member)

    def snapshot_sent(self, member: str, index: int) -> None:
        """The follower has installed a snapshot that ends at `index`."""
        self.snapshots_sent[member] += 1
        self._follower(member).forget()
        self._follower(member).wants_snapshot = False
        self._engine.set_next_index(member, index + 1)

    def _follower(self, member: str) -> _Follower:
        follower = self._followers.get(member)
        if follower is None:
            follower = self._followers[member] = _Follower()
        return follower

    def _send_to(self, member: str, now: float, *, beat: bool, notice: bool) -> bool:
        """Returns whether the follower must still receive the commit index."""
        follower = self._follower(member)
        if not follower.reachable and not beat:
            return False
        next_index = self._engine.next_index(member)
        if next_index <= self._journal.first.index:
            follower.wants_snapshot = True
            if beat:
                self._send(member, MessageKind.HEARTBEAT, [self._engine.term, now])
            return False
        last_index = self._journal.last.index
        sent = False
        while next_index <= last_index and follower.in_flight_bytes < WINDOW_BYTES:
            entries = [self._journal.last] if next_index == last_index else self._entries_from(next_index)
            if not self._append(member, follower, now, next_index - 1, entries):
                return False
            next_index = entries[-1].index + 1
            self._engine.set_next_index(member, next_index)
            size = sum(len(entry.command) for entry in entries)
            follower.in_flight.append((next_index - 1, size))
            follower.in_flight_bytes += size
            sent = True
        unsent = follower.sent_commit < self._engine.commit_index
        if not sent and (beat or (notice and unsent)):
            self._append(member, follower, now, next_index - 1, [])
            return False
        return unsent

    def _entries_from(self, index: int) -> list[Entry]:
        """As many as fit into one message, at least one."""
        last_index = self._journal.last.index
        entries: list[Entry] = []
        size = 0
        while index <= last_index and len(entries) < APPEND_ENTRIES_MAX:
            for entry in self._journal.slice(index, min(index + READ_ENTRIES, last_index + 1)):
                if entries and size + len(entry.command) > APPEND_BYTES_MAX:
                    return entries
                entries.append(entry)
                size += len(entry.command)
            index += READ_ENTRIES
        return entries

    def _append(self, member: str, follower: _Follower, now: float, prev_index: int, entries: list[Entry]) -> bool:
        commit = self._engine.commit_index
        body = [
            self._engine.term,
            commit,
            prev_index,
            self._journal.term_at(prev_index),
            now,
            [[entry.command, entry.term] for entry in entries],
        ]
        follower.reachable = self._send(member, MessageKind.APPEND, body)
        if not follower.reachable:
            return False
        if commit <= prev_index + len(entries):
            follower.sent_commit = commit
        return True
