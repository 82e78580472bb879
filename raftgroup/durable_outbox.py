"""Nothing leaves a member before what it says is on disk: messages wait here for the sync that makes them true.

A message waits for every change that was made to the journal before it was handed in, by the number of the last one.
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
        """Send once everything that was written until now is on disk; False when that has to be waited for."""
        if self.held or self._journal.dirty:
            self.held.append((self._journal.written, (member, kind, body)))
            return False
        self._send(member, kind, body)
        return True

    def send_in_term(self, member: str, kind: int, body: Any) -> None:
        """Send once term and vote are on disk: a message that says nothing of entries."""
        if self.term_is_durable:
            self._send(member, kind, body)
        else:
            self.send_durable(member, kind, body)

    def term_written(self) -> None:
        """Term or vote were written to the journal."""
        self._term_change = self._journal.written

    @property
    def term_is_durable(self) -> bool:
        """Whether messages may leave that only claim that this node is in its term."""
        return self._journal.saved >= self._term_change

    def release(self) -> None:
        """After a sync: send what it made true."""
        while self.held and self.held[0][0] <= self._journal.saved:
            _, message = self.held.popleft()
            self._send(*message)
