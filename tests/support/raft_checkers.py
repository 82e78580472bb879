"""What must hold in every run of a group, whatever happens to it; each rule names its source.

The rules look at the nodes from outside, after every turn, and at what the clients were told. They are proved by
planting the faults that they are for (`tests/raftgroup/test_checkers_see_planted_faults.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgpack

from raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from raftgroup.messages import Kind
from raftgroup.proposals import Applied
from tests.support.register_machine import put

if TYPE_CHECKING:
    from tests.support.raft_cluster import Cluster, Node


_DURABLE = frozenset(
    (Kind.APPEND, Kind.HEARTBEAT, Kind.APPEND_REPLY, Kind.HEARTBEAT_REPLY, Kind.REQUEST_VOTE, Kind.VOTE)
)


class Violation(AssertionError):
    """A rule of Raft, or a promise to a client, was broken."""


@dataclass(slots=True)
class Operation:
    """A write (`operation` is its id) or a read (`seen` is the id of the write that it saw). Simulated times."""

    client: str
    key: str
    begin: float
    operation: str | None = None
    seen: str | None = None
    end: float = math.inf
    outcome: str = "open"
    ends: int = 0
    index: int | None = None


class Checkers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.leaders: dict[int, str] = {}
        self.committed: dict[int, tuple[int, tuple[bytes, ...]]] = {}
        self.committed_in: dict[int, int] = {}
        """By index, the term of the node that was the first to apply it: at least the one in which it was committed. An
        entry of an old term may be committed by a much later leader (Raft 5.4.2); who won a term before that one, and
        was paused until now, need not have it."""
        self.position: dict[str, tuple[int, int]] = {}
        self.history: list[Operation] = []
        self.violations: list[Violation] = []
        """Also those that were raised where somebody catches everything, as a node does around its turn."""
        self._terms: dict[str, tuple[int, int]] = {}
        self._led: set[tuple[str, int]] = set()
        self._numbers = 0

    def forget(self, member: str) -> None:
        """Its disk is lost: it may begin anew."""
        self._terms.pop(member, None)

    def _fail(self, text: str) -> None:
        violation = Violation(f"seed {self._cluster.simulation.seed}, at {self._cluster.simulation.now:.3f} s: {text}")
        self.violations.append(violation)
        raise violation

    # Rules that hold at any time.

    def said(self, sender: str, receiver: str, kind: int, body: Any) -> None:
        """Nothing leaves a node before what it says is on its disk (pysyncobj.md, fault 4)."""
        if kind not in _DURABLE:
            return
        term, disk = body[0], self._cluster.nodes[sender].disk.journal._disk
        if disk.term < term:
            self._fail(f"{sender} speaks in term {term} and has only {disk.term} on disk")
        if disk.term > term:
            return
        if kind == Kind.VOTE and body[1] and disk.vote != receiver:
            self._fail(f"{sender} votes for {receiver} in term {term} and has {disk.vote} on disk")
        held = disk.entries[-1].index if disk.entries else disk.base_index
        if kind == Kind.APPEND_REPLY and body[2] and held < body[1] - 1:
            self._fail(f"{sender} acknowledges up to {body[1] - 1} and has only {held} on disk")

    def turned(self, node: Node) -> None:
        if self.violations:
            raise self.violations[0]
        engine = node.group._replica.engine
        term = engine.term
        known_start, known_term = self._terms.get(node.id, (0, 0))
        if term < known_term and known_start == node.starts:
            self._fail(f"the term of {node.id} went back from {known_term} to {term} (Raft 5.1)")
        self._terms[node.id] = (node.starts, term)
        if engine.leads and (node.id, term) not in self._led:
            self._led.add((node.id, term))
            if self.leaders.setdefault(term, node.id) != node.id:
                self._fail(f"{self.leaders[term]} and {node.id} both lead term {term}: election safety (Raft 5.2)")
            self._check_leader_complete(node, term)

    def _check_leader_complete(self, node: Node, term: int) -> None:
        """Leader completeness (Raft 5.4)."""
        journal = node.disk.journal
        for index, (entry_term, _) in self.committed.items():
            if index <= journal.first.index or self.committed_in.get(index, entry_term) >= term:
                continue
            if journal.term_at(index) != entry_term:
                self._fail(f"{node.id} leads term {term} without the committed entry ({index}, {entry_term})")

    def applied_by(self, member: str) -> Callable[[int, int, tuple[bytes, ...]], None]:
        """State machine safety (Raft 5.4.3); and no command is applied twice, since nobody retries here."""

        def observe(index: int, term: int, commands: tuple[bytes, ...]) -> None:
            group = self._cluster.nodes[member].group
            self.committed_in.setdefault(index, term if group is None else group.term)
            known = self.committed.setdefault(index, (term, commands))
            if known != (term, commands):
                self._fail(f"{member} applies {(term, commands)} at index {index}, another node applied {known}")
            for number, command in enumerate(commands):
                operation = msgpack.unpackb(command)[0]
                if self.position.setdefault(operation, (index, number)) != (index, number):
                    self._fail(f"{operation} is applied at {self.position[operation]} and again at {(index, number)}")

        return observe

    def check_logs(self) -> None:
        """Log matching (Raft 5.3): the same index and term mean the same log up to there."""
        nodes = list(self._cluster.nodes.values())
        for number, one in enumerate(nodes):
            for other in nodes[number + 1 :]:
                self._check_pair(one, other)

    def _check_pair(self, one: Node, other: Node) -> None:
        left, right = one.disk.journal, other.disk.journal
        first = max(left.first.index, right.first.index)
        index = min(left.last.index, right.last.index)
        while index > first and left.term_at(index) != right.term_at(index):
            index -= 1
        ours, theirs = left.slice(first + 1, index + 1), right.slice(first + 1, index + 1)
        if list(ours) != list(theirs):
            self._fail(f"the logs of {one.id} and {other.id} agree at index {index} and differ below (log matching)")

    # Clients.

    async def write(self, node: Node, key: str, value: str, timeout_s: float) -> Applied:
        self._numbers += 1
        operation = Operation(node.id, key, self._cluster.simulation.now, operation=f"{node.id}-{self._numbers}")
        self.history.append(operation)
        try:
            applied = await node.group.propose(
                put(operation.operation, key, f"{value}|{operation.operation}"), timeout_s=timeout_s
            )
        except Unavailable:
            self._end(operation, "refused")
            raise
        except (OutcomeUnknown, NodeFailed):
            self._end(operation, "unknown")
            raise
        self._end(operation, "applied")
        operation.index = applied.index
        if self.committed.get(applied.index, (None,))[0] != applied.term or applied.result[0] != operation.operation:
            self._fail(
                f"{operation.operation} was answered {applied}, committed is {self.committed.get(applied.index)}"
            )
        return applied

    async def read(self, node: Node, key: str, timeout_s: float) -> str | None:
        operation = Operation(node.id, key, self._cluster.simulation.now)
        if not node.group.try_read_barrier():
            await node.group.read_barrier(timeout_s=timeout_s)
        stored = node.disk.machine.registers.get(key)
        operation.seen = None if stored is None else stored.rpartition("|")[2]
        self._end(operation, "read")
        self.history.append(operation)
        return None if stored is None else stored.rpartition("|")[0]

    def _end(self, operation: Operation, outcome: str) -> None:
        operation.ends += 1
        operation.end = self._cluster.simulation.now
        operation.outcome = outcome

    # Rules for a whole run.

    def check_run(self) -> None:
        self.check_logs()
        self._check_ends()
        self._check_durable()
        for key in sorted({operation.key for operation in self.history}):
            check_linearizable([each for each in self.history if each.key == key], self.position, self._fail)

    def _check_ends(self) -> None:
        """Refused means never applied (pysyncobj.md, fault 13)."""
        for operation in self.history:
            if operation.outcome == "refused" and operation.operation in self.position:
                self._fail(f"{operation.operation} was refused, and is applied at {self.position[operation.operation]}")

    def _check_durable(self) -> None:
        """What was acknowledged is in the state of everybody who is up to date."""
        for node in self._cluster.healthy:
            applied = node.disk.machine.applied[0]
            held = {index: commands for index, _, commands in node.disk.machine.log}
            for operation in self.history:
                if operation.outcome != "applied" or operation.index > applied:
                    continue
                commands = held.get(operation.index, ())
                if operation.operation not in [msgpack.unpackb(command)[0] for command in commands]:
                    self._fail(
                        f"{operation.operation} was acknowledged at {operation.index}; {node.id} does not have it"
                    )
        top = max((each.index for each in self.history if each.index is not None), default=0)
        if not any(node.disk.machine.applied[0] >= top for node in self._cluster.healthy):
            self._fail(f"acknowledged up to index {top}, and nobody who is up has applied that")


def check_linearizable(
    operations: list[Operation], position: dict[str, tuple[int, int]], fail: Callable[[str], Any]
) -> None:
    """One register whose writes are in a known order (their position in the log): linearizable iff the positions
    never go back in real time (Herlihy and Wing; with the total order of writes given, this is complete).

    A write stands at its position. A read stands behind the write that it saw and before the next one.
    """
    events: list[tuple[float, int, tuple[int, int], Operation]] = []
    for operation in operations:
        name = operation.operation or operation.seen
        if operation.operation is not None and operation.operation not in position:
            if operation.outcome == "applied":
                fail(f"{operation.operation} was acknowledged and never applied")
            continue
        if operation.operation is None and operation.outcome != "read":
            continue
        if name is not None and name not in position:
            fail(f"a read saw {name}, which was never committed")
        place = position[name] if name is not None else (0, 0)
        finished = operation.outcome in ("applied", "read")
        events.append((operation.begin, 0, place, operation))
        if finished:
            events.append((operation.end, 1, place, operation))
    events.sort(key=lambda event: event[:2])
    latest: tuple[tuple[int, int], Operation | None] = ((-1, -1), None)
    for _, ended, place, operation in events:
        if not ended and place < latest[0]:
            fail(f"{operation} began after the end of {latest[1]}, and stands before it")
        if ended and place > latest[0]:
            latest = (place, operation)
    _check_no_read_from_the_future(operations, fail)


def _check_no_read_from_the_future(operations: list[Operation], fail: Callable[[str], Any]) -> None:
    begins = {operation.operation: operation.begin for operation in operations if operation.operation is not None}
    for operation in operations:
        if operation.operation is None and operation.seen is not None and begins[operation.seen] > operation.end:
            fail(f"{operation} saw a write that began later")
