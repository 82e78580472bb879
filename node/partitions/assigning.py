"""Makes an assignment: reads the catalog, writes what differs, in transactions that stop when another one has begun.

The first transaction says who assigns, and every further one holds only while that still stands. So of two that assign
at the same time one stops with AssignmentOvertaken, and what it has written is made right by the other or by a
repetition: the result depends on nodes and partitions only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put
from metastore.results import RangeResult, TxnResult
from node.partitions.assignment import Changes, assign, changes, last_assignment
from node.partitions.errors import BadPartition, PartitionError
from node.partitions.names import ASSIGNMENTS, LAST_ASSIGNMENT, PARTITIONS, Wanted, checked_name, name_below, wanted_of

OPERATIONS = 200
"""Of one transaction; the limit of a cluster can be set as low as one likes, so this is no promise."""

Progress = Callable[[int, int], None]


class AssignmentOvertaken(PartitionError):
    """Somebody else has assigned meanwhile."""

    retry = True


class Store(Protocol):
    """The part of `node.client.Client` that is needed."""

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult: ...
    async def txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult: ...


@dataclass(frozen=True, slots=True)
class Assigned:
    """`written`: how many assignments were put or deleted now."""

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
    store: Store, nodes: Sequence[str], replicas: int, prefix: str, progress: Progress
) -> Assigned:
    """Of the partitions whose <table>/<day> begins with `prefix`. Raises PartitionError, and what the store raises."""
    if replicas > len(nodes):
        raise PartitionError(
            f"{replicas} replicas need as many nodes, and {len(nodes)} keep partitions ({', '.join(nodes) or 'none'}): "
            "start more nodes with --partitions, or give fewer --replicas"
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
    """Whether an assignment is one of a partition with this prefix; also one that names no partition at all."""
    if not key.startswith(ASSIGNMENTS):
        return False
    _, _, name = key.removeprefix(ASSIGNMENTS).partition(b"/")
    return name.startswith(prefix.encode())


async def _write(store: Store, last: int, todo: Changes, head: tuple[bytes, bytes], progress: Progress) -> None:
    operations: list[Put | DeleteRange] = [Put(key, value) for key, value in todo.puts]
    operations += [DeleteRange(key) for key in todo.deletes]
    progress(0, len(operations))
    last = await _hold(store, last, [Put(*head)])
    for start in range(0, len(operations), OPERATIONS):
        await _hold(store, last, operations[start : start + OPERATIONS])
        progress(min(start + OPERATIONS, len(operations)), len(operations))


async def _hold(store: Store, last: int, operations: Sequence[Put | DeleteRange]) -> int:
    """While nobody else has begun. The revision of this write."""
    unchanged = Compare(LAST_ASSIGNMENT, CompareTarget.MOD, CompareResult.EQUAL, last)
    result = await store.txn([unchanged], operations)
    if not result.succeeded:
        raise AssignmentOvertaken(
            "somebody else assigns partitions too, and has begun later: look (palisade partitions list), and repeat"
        )
    return result.revision


def assigned_by_node(present: RangeResult) -> dict[str, dict[str, Wanted]]:
    """What is assigned to each node, out of everything below ASSIGNMENTS; what can't be read is left out."""
    found: dict[str, dict[str, Wanted]] = {}
    for kv in present.kvs:
        node, _, name = kv.key.removeprefix(ASSIGNMENTS).decode("utf-8", "backslashreplace").partition("/")
        try:
            found.setdefault(node, {})[checked_name(name)] = wanted_of(kv.value)
        except BadPartition:
            continue
    return found
