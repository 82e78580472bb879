"""A Receiver that records its calls and lets a test wait for a condition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

PATIENCE_S = 20.0


class Recorder:
    """The calls of the transport, in order. Refuses handshakes of another cluster, as the group does."""

    def __init__(self, member: str, cluster: str = "c1", *, big: str = "") -> None:
        self.member = member
        self.cluster = cluster
        self.big = big
        self.connected: list[str] = []
        self.disconnected: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.messages: list[tuple[str, int, Any]] = []
        self.greetings: list[dict[str, Any]] = []
        self.answer: Callable[[str, int, Any], None] | None = None
        self._changed: asyncio.Event | None = None

    def greeting(self) -> dict[str, Any]:
        return {"cluster": self.cluster, "member": self.member, "incarnation": "i1", "big": self.big}

    def greet(self, greeting: dict[str, Any]) -> str | None:
        self.greetings.append(greeting)
        if greeting.get("cluster") != self.cluster:
            return f"this is cluster {self.cluster}, not {greeting.get('cluster')}"
        return None

    def on_connected(self, member: str, greeting: dict[str, Any]) -> None:
        self.connected.append(member)
        self._note()

    def on_disconnected(self, member: str) -> None:
        self.disconnected.append(member)
        self._note()

    def on_refused(self, member: str, reason: str) -> None:
        self.refused.append((member, reason))
        self._note()

    def on_message(self, member: str, kind: int, body: Any) -> None:
        self.messages.append((member, kind, body))
        if self.answer is not None:
            self.answer(member, kind, body)
        self._note()

    def _note(self) -> None:
        if self._changed is not None:
            self._changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; it is checked after every call, and at intervals."""
        async with asyncio.timeout(PATIENCE_S):
            self._changed = asyncio.Event()
            while not condition():
                self._changed.clear()
                try:
                    await asyncio.wait_for(self._changed.wait(), 0.01)
                except TimeoutError:
                    continue
