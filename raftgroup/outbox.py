"""Nothing leaves a member before what it says is on disk: messages wait here for the sync that makes them true.

A sync covers everything that was written before it began. What is handed in while one runs waits for the next one, or
for the end of this one if nothing was written since.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raftgroup.ports import Journal

Send = Callable[[str, int, Any], bool]
Message = tuple[str, int, Any]


class Outbox:
    """`send` delivers at once, best effort."""

    def __init__(self, journal: Journal, send: Send) -> None:
        self._journal = journal
        self._send = send
        self._held: list[Message] = []
        self._covered: list[Message] = []
        self._syncing = False
        self._term_writes = 0
        self._term_writes_covered = 0
        self._term_writes_synced = 0

    def send_durable(self, member: str, kind: int, body: Any) -> bool:
        """Send once everything that was written until now is on disk; False when that has to be waited for."""
        if self._syncing or self._journal.dirty:
            self._held.append((member, kind, body))
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
        self._term_writes += 1

    @property
    def term_is_durable(self) -> bool:
        """Whether messages may leave that only claim that this node is in its term."""
        return self._term_writes == self._term_writes_synced

    @property
    def waits_for_sync(self) -> bool:
        """The journal need not be dirty for that any more: an install syncs it too."""
        return bool(self._held) or not self.term_is_durable

    def begin_sync(self) -> None:
        self._covered, self._held = self._held, []
        self._syncing = True
        self._term_writes_covered = self._term_writes

    def end_sync(self) -> None:
        self._syncing = False
        self._term_writes_synced = self._term_writes_covered
        released, self._covered = self._covered, []
        if not self._journal.dirty:
            released, self._held = released + self._held, []
        for message in released:
            self._send(*message)
