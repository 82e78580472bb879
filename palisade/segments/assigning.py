"""Executes an assignment: reads the catalog and writes the differences, in transactions that stop if overtaken.

The first transaction writes the LAST_ASSIGNMENT key, and every further one requires that this key is unchanged. So one
of two concurrent assignments stops with AssignmentOvertaken. The other one, or a repetition, corrects what it has
written: the result depends only on nodes and partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put
from palisade.metastore.results import RangeResult, TxnResult
from palisade.segments.assignment import AssignmentChanges, assign, changes, last_assignment
from palisade.segments.names import (
    ASSIGNMENTS,
    LAST_ASSIGNMENT,
    PARTITIONS,
    Wanted,
    checked_name,
    name_below,
    wanted_of,
)
from palisade.wire.segment_errors import BadPartition, PartitionError

OPERATIONS = 200
"""Operations per transaction. A cluster may be configured with a lower limit and then rejects the transaction."""

Progress = Callable[[int, int], None]


class AssignmentOvertaken(PartitionError):
    """Another assignment has begun meanwhile."""

    retry = True


class AssignmentStore(Protocol):
    """The methods of `client.Client` that an assignment uses."""

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult: ...
    async def txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult: ...


@dataclass(frozen=True, slots=True)
class Assigned:
    """`written`: number of assignments put or deleted by this call."""

    partitions: int
    nodes: tuple[str, ...]
    replicas: int
    assignments: int
    written: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "partitions": self.partitions,
            "nodes": list(self.nodes),
            "replicas": self.replicas,
            "assignments": self.assignments,
            "written": self.written,
        }


async def assign_partitions(
    store: AssignmentStore, nodes: Sequence[str], replicas: int, prefix: str, progress: Progress
) -> Assigned:
    """Assign the partitions whose <table>/<day> begins with `prefix`. Raises PartitionError and the store's errors."""
    if replicas > len(nodes):
        raise PartitionError(
            f"{replicas} replicas need {replicas} nodes, but only {len(nodes)} store partitions "
            f"({', '.join(nodes) or 'none'}): start more nodes with --partitions, or reduce --replicas"
        )
    found = await store.range(PARTITIONS + prefix.encode(), prefix=True)
    present = await store.range(LAST_ASSIGNMENT, prefix=True, revision=found.revision)
    partitions = {name_below(PARTITIONS, kv.key): wanted_of(kv.value) for kv in found.kvs}
    last = next((kv.mod_revision for kv in present.kvs if kv.key == LAST_ASSIGNMENT), 0)
    now = {kv.key: kv.value for kv in present.kvs if is_of(kv.key, prefix)}
    wanted = assign(partitions, nodes, replicas)
    todo = changes(now, wanted)
    if len(todo):
        await _write(store, last, todo, last_assignment(nodes, replicas, prefix), progress)
    return Assigned(len(partitions), tuple(sorted(nodes)), replicas, len(wanted), len(todo))


def is_of(key: bytes, prefix: str) -> bool:
    """Whether `key` is an assignment of a partition with this prefix. The partition's name is not validated."""
    if not key.startswith(ASSIGNMENTS):
        return False
    _, _, name = key.removeprefix(ASSIGNMENTS).partition(b"/")
    return name.startswith(prefix.encode())


async def _write(
    store: AssignmentStore, last: int, todo: AssignmentChanges, head: tuple[bytes, bytes], progress: Progress
) -> None:
    operations: list[Put | DeleteRange] = [Put(key, value) for key, value in todo.puts]
    operations += [DeleteRange(key) for key in todo.deletes]
    progress(0, len(operations))
    last = await _hold(store, last, [Put(*head)])
    for start in range(0, len(operations), OPERATIONS):
        await _hold(store, last, operations[start : start + OPERATIONS])
        progress(min(start + OPERATIONS, len(operations)), len(operations))


async def _hold(store: AssignmentStore, last: int, operations: Sequence[Put | DeleteRange]) -> int:
    """Write, if no other assignment has begun. Returns the revision. Raises AssignmentOvertaken."""
    unchanged = Compare(LAST_ASSIGNMENT, CompareTarget.MOD, CompareResult.EQUAL, last)
    result = await store.txn([unchanged], operations)
    if not result.succeeded:
        raise AssignmentOvertaken(
            "another assignment of partitions began during this one, which was stopped midway: check with palisade "
            "partitions list, and repeat"
        )
    return result.revision


def assigned_by_node(present: RangeResult) -> dict[str, dict[str, Wanted]]:
    """Assignments by node, from all keys below ASSIGNMENTS; invalid ones are skipped."""
    found: dict[str, dict[str, Wanted]] = {}
    for kv in present.kvs:
        node, _, name = kv.key.removeprefix(ASSIGNMENTS).decode("utf-8", "backslashreplace").partition("/")
        try:
            found.setdefault(node, {})[checked_name(name)] = wanted_of(kv.value)
        except BadPartition:
            continue
    return found
