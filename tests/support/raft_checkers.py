"""Properties of every run of a bare group: the rules of Raft (`raft_rules`), and the results of its clients.

The writes of a group's registers have a known order, the log's; their histories are judged by that order, which needs
no search, unlike in the simulator of whole clusters. The checks are proved by planting the faults that they are for
(`tests/raftgroup/test_checkers_see_planted_faults.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import msgpack

from palisade.raftgroup.errors import NodeFailed, OutcomeUnknown, Unavailable
from palisade.raftgroup.proposals import Applied
from tests.support.onlooker import Onlooker, Violation
from tests.support.ordered_answers import Answer, overtaken
from tests.support.raft_rules import RULES
from tests.support.raft_rules.log_matching import LogMatching
from tests.support.raft_rules.state_machine_safety import StateMachineSafety
from tests.support.register_machine import put

if TYPE_CHECKING:
    from tests.support.raft_cluster import Cluster, Node


R = TypeVar("R", bound=Onlooker)


@dataclass(slots=True)
class Operation:
    """A write (`operation` is its id) or a read (`seen` is the id of the write that it returned). Simulated times."""

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
    """Of a cluster, of which it is the `View` as well."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.network = cluster.network
        self.position: dict[str, tuple[int, int]] = {}
        self.history: list[Operation] = []
        self.violations: list[Violation] = []
        """Also those that were raised where all exceptions are caught, as a node does around its turn."""
        self._numbers = 0
        self._rules = {rule: rule(self) for rule in RULES}

    @property
    def members(self) -> list[Node]:
        return list(self._cluster.nodes.values())

    def by_id(self, member: str) -> Node:
        return self._cluster.nodes[member]

    def fail(self, checker: str, text: str) -> None:
        simulation = self._cluster.simulation
        violation = Violation(checker, f"seed {simulation.seed}, at {simulation.now:.3f} s: {text}")
        self.violations.append(violation)
        raise violation

    def rule(self, kind: type[R]) -> R:
        found = self._rules[kind]
        assert isinstance(found, kind)
        return found

    @property
    def committed(self) -> dict[int, tuple[int, tuple[bytes, ...]]]:
        """By index: the term of the entry, and its commands, as the first node has applied it."""
        return self.rule(StateMachineSafety).entries

    # Invariants.

    def turned(self, node: Node) -> None:
        if self.violations:
            raise self.violations[0]
        for rule in self._rules.values():
            rule.turned(node)

    def applied_by(self, member: str) -> Callable[[int, int, tuple[bytes, ...]], None]:
        """Also: no command is applied twice, since no client retries here."""

        def observe(index: int, term: int, commands: tuple[bytes, ...]) -> None:
            for rule in self._rules.values():
                rule.applied(self.by_id(member), index, term, commands)
            for number, command in enumerate(commands):
                operation = msgpack.unpackb(command)[0]
                place = self.position.setdefault(operation, (index, number))
                if place != (index, number):
                    self.fail("exactly once", f"{operation} is applied at {place} and again at {(index, number)}")

        return observe

    def check_logs(self) -> None:
        self.rule(LogMatching).ended()

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
            self.fail(
                "durable",
                f"{operation.operation} was answered {applied}, committed is {self.committed.get(applied.index)}",
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
            operations = [each for each in self.history if each.key == key]
            check_linearizable(operations, self.position, lambda text: self.fail("linearizable", text))

    def _check_ends(self) -> None:
        """Refused means never applied (pysyncobj.md, fault 13)."""
        for operation in self.history:
            if operation.outcome == "refused" and operation.operation in self.position:
                place = self.position[operation.operation]
                self.fail("exactly once", f"{operation.operation} was refused, and is applied at {place}")

    def _check_durable(self) -> None:
        """Every acknowledged write is in the state of every up-to-date node."""
        for node in self._cluster.healthy:
            applied = node.disk.machine.applied[0]
            held = {index: commands for index, _, commands in node.disk.machine.log}
            for operation in self.history:
                if operation.outcome != "applied" or operation.index > applied:
                    continue
                commands = held.get(operation.index, ())
                if operation.operation not in [msgpack.unpackb(command)[0] for command in commands]:
                    self.fail(
                        "durable",
                        f"{operation.operation} was acknowledged at {operation.index}; {node.id} does not have it",
                    )
        top = max((each.index for each in self.history if each.index is not None), default=0)
        if not any(node.disk.machine.applied[0] >= top for node in self._cluster.healthy):
            self.fail("durable", f"acknowledged up to index {top}, and no running node has applied that")


def check_linearizable(
    operations: list[Operation], position: dict[str, tuple[int, int]], fail: Callable[[str], Any]
) -> None:
    """One register; a write stands at its position in the log, a read at that of the write that it returned."""
    answers: list[Answer] = []
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
        finished = operation.outcome in ("applied", "read")
        place = position[name] if name is not None else (0, 0)
        answers.append(Answer(operation.begin, operation.end if finished else math.inf, place, str(operation)))
    for late, known in overtaken(answers, answers):
        fail(f"{late.by} began after the end of {known.by}, and stands before it")
    _check_no_read_from_the_future(operations, fail)


def _check_no_read_from_the_future(operations: list[Operation], fail: Callable[[str], Any]) -> None:
    begins = {operation.operation: operation.begin for operation in operations if operation.operation is not None}
    for operation in operations:
        if operation.operation is None and operation.seen is not None and begins[operation.seen] > operation.end:
            fail(f"{operation} saw a write that began later")
