"""Unmodified PySyncObj on a clock and a network of the test: shows its faults (pysyncobj.md)."""

from __future__ import annotations

from typing import Any

import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.poller
import pysyncobj.syncobj as library
from pysyncobj import SyncObj, SyncObjConf, replicated
from pysyncobj.node import Node
from pysyncobj.transport import Transport

from tests.support.hand_clock import Clock


class RecordedTransport(Transport):
    def __init__(self) -> None:
        super().__init__(None, None, [])
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def addNode(self, node: Node) -> None: ...  # noqa: N802
    def dropNode(self, node: Node) -> None: ...  # noqa: N802
    def send(self, node: Node, message: dict[str, Any]) -> bool:
        self.sent.append((node.id, message))
        return True


class _FixedRandom:
    @staticmethod
    def random() -> float:
        return 0.5


class BareNode(SyncObj):  # type: ignore[misc]
    """Node `n1` of three. It counts the increments that it applies."""

    def __init__(self, clock: Clock, **conf: Any) -> None:
        library.createJournal = pysyncobj.journal.createJournal
        library.createPoller = pysyncobj.poller.createPoller
        library.pickle = pysyncobj.pickle
        library.PIPE_NOTIFIER_ENABLED = False
        library.monotonicTime = clock.now
        library.random = _FixedRandom
        self.network = RecordedTransport()
        self.peers = {name: Node(name) for name in ("n2", "n3")}
        self.clock = clock
        conf = {"autoTick": False, "appendEntriesUseBatch": False, "raftMinTimeout": 1.0, "raftMaxTimeout": 1.5} | conf
        super().__init__(Node("n1"), list(self.peers.values()), conf=SyncObjConf(**conf), transport=self.network)
        self.total = 0
        for peer in self.peers.values():
            self.network._onNodeConnected(peer)

    @replicated
    def add(self, number: int) -> int:
        self.total += number
        return self.total

    @replicated
    def break_after(self, number: int) -> None:
        self.total += number
        raise RuntimeError("in the middle of a command")

    def gets(self, member: str, **message: Any) -> None:
        self.network._onMessageReceived(self.peers[member], message)

    def gets_append(self, term: int, entries: list[Any], prev: tuple[int, int], commit: int = 1) -> None:
        self.gets(
            "n2",
            type="append_entries",
            term=term,
            commit_index=commit,
            entries=entries,
            prevLogIdx=prev[0],
            prevLogTerm=prev[1],
        )

    def tick(self) -> None:
        self.doTick(0.0)

    def leads(self) -> None:
        """Elected by n2."""
        self.clock.time += 2.0
        self.tick()
        self.gets("n2", type="response_vote", term=self.raftCurrentTerm)
        self.tick()

    @property
    def log(self) -> list[tuple[int, int]]:
        return [(entry[1], entry[2]) for entry in self._SyncObj__raftLog[:]]

    def field(self, name: str) -> Any:
        return getattr(self, f"_SyncObj__{name}")


NO_OP = b"\x01"


def entry(index: int, term: int) -> tuple[bytes, int, int]:
    return NO_OP, index, term
