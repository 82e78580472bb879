"""A message leaves a member only after the state that it reports is on disk: messages wait here for that sync.

A message waits for every change of the journal made before it was queued, identified by the number of the last one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from palisade.raftgroup.ports import Journal

Send = Callable[[str, int, Any], bool]
Message = tuple[str, int, Any]


class Outbox:
    """`send` delivers at once, best effort."""

    def __init__(self, journal: Journal, send: Send) -> None:
        self._journal = journal
        self._send = send
        self._term_change = 0
        self.held: deque[tuple[int, Message]] = deque()
        """In order, each with the change of the journal that it waits for."""

    def send_durable(self, member: str, kind: int, body: Any) -> bool:
        """Send once everything written so far is on disk; False if the message has to wait."""
        if self.held or self._journal.dirty:
            self.held.append((self._journal.written, (member, kind, body)))
            return False
        self._send(member, kind, body)
        return True

    def send_in_term(self, member: str, kind: int, body: Any) -> None:
        """Send once term and vote are on disk: for a message that makes no statement about entries."""
        if self.term_is_durable:
            self._send(member, kind, body)
        else:
            self.send_durable(member, kind, body)

    def term_written(self) -> None:
        """Term or vote were written to the journal."""
        self._term_change = self._journal.written

    @property
    def term_is_durable(self) -> bool:
        """Whether messages may leave that state only this node's term."""
        return self._journal.saved >= self._term_change

    def release(self) -> None:
        """After a sync: send the messages whose state is now durable."""
        while self.held and self.held[0][0] <= self._journal.saved:
            _, message = self.held.popleft()
            self._send(*message)
