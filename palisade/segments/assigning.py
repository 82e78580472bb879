"""Executes an assignment: reads the catalog and writes the differences, in transactions that stop if overtaken.

The first transaction writes the LAST_ASSIGNMENT key, and every further one requires that this key is unchanged. Thus
one of two concurrent assignments stops with AssignmentOvertaken. The other one, or a retry, corrects the keys that it
has written, because the result depends only on the nodes and the records of segments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from palisade.base.counted import agreeing, counted
from palisade.catalog.publication import MANIFESTS, Manifest
from palisade.catalog.realtime import unsettles
from palisade.catalog.segment import RECORDS, SegmentRecord
from palisade.client.beside_growing import beside_growing
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put
from palisade.metastore.results import RangeResult, TxnResult
from palisade.segments.assignment import assign, changes, last_assignment
from palisade.segments.names import ASSIGNMENTS, LAST_ASSIGNMENT, Wanted, checked_name, wanted_of
from palisade.wire.segment_errors import BadSegment, SegmentError

OPERATIONS = 200
"""Operations per transaction. A cluster may be configured with a lower limit and then rejects the transaction."""

Progress = Callable[[int, int], None]


class AssignmentOvertaken(SegmentError):
    """Another assignment has begun meanwhile."""

    retry = True


class AssignmentStore(Protocol):
    """The methods of `client.Client` that an assignment uses."""

    async def range(self, key: bytes, *, prefix: bool = False, revision: int = 0) -> RangeResult: ...
    async def segments_txn(self, compare: Iterable[Compare] = (), success: Iterable[Any] = ()) -> TxnResult: ...


@dataclass(frozen=True, slots=True)
class Assigned:
    """`written`: number of assignments put or deleted by this call. `left_out`: nodes that are no longer
    assigned any of these segments. `short`: the segments with a replication factor above the number of nodes, each with
    its factor; they are assigned to all nodes."""

    segments: int
    nodes: tuple[str, ...]
    replicas: int
    assignments: int
    written: int
    left_out: tuple[str, ...] = ()
    short: tuple[tuple[str, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {
            "segments": self.segments,
            "nodes": list(self.nodes),
            "replicas": self.replicas,
            "assignments": self.assignments,
            "written": self.written,
            "left_out": list(self.left_out),
            "short": [{"segment": name, "replicas": replicas} for name, replicas in self.short],
        }


async def assign_segments(
    store: AssignmentStore, nodes: Sequence[str], replicas: int | None, prefix: str, progress: Progress
) -> Assigned:
    """Assign the used segments whose names begin with `prefix`, each to as many nodes as its replication factor.

    `replicas`: sets the replication factor of these segments first; refused if it is above the number of nodes. A
    segment that already has such a factor gets a copy on every node, so it does not prevent the assignment of others.
    Raises SegmentError and the store's errors.
    """
    found = await store.range(RECORDS + prefix.encode(), prefix=True)
    manifests = await store.range(MANIFESTS, prefix=True, revision=found.revision)
    present = await store.range(LAST_ASSIGNMENT, prefix=True, revision=found.revision)
    present_records = {each: revision for each, revision in visible(found, manifests) if not each.is_growing}
    most = max((record.replicas for record in present_records), default=0) if replicas is None else replicas
    if most > len(nodes) and (replicas is not None or not nodes):
        raise SegmentError(
            f"{counted(most, 'replica')} {agreeing(most, 'needs', 'need')} {counted(most, 'node')}, but only "
            f"{len(nodes)} {agreeing(len(nodes), 'stores', 'store')} segments ({', '.join(nodes) or 'none'}): start "
            "more nodes with --segments, or reduce --replicas"
        )
    records, writes = with_factor(present_records, replicas)
    if replicas is not None:
        guard = await guards(store, present_records, replicas)
        writes = [replace(each, guard=guard.get(each.operation.key, ())) for each in writes]
    last = next((kv.mod_revision for kv in present.kvs if kv.key == LAST_ASSIGNMENT), 0)
    now = {kv.key: kv.value for kv in present.kvs if is_of(kv.key, prefix)}
    wanted = assign(records, nodes)
    todo = changes(now, wanted)
    writes += [AssignmentWrite(Put(key, value)) for key, value in todo.puts] + [
        AssignmentWrite(DeleteRange(key)) for key in todo.deletes
    ]
    head = last_assignment(nodes, replicas, prefix)
    if writes or head[1] not in (kv.value for kv in present.kvs if kv.key == LAST_ASSIGNMENT):
        await _write(store, last, writes, head, progress)
    left_out = {node_of(key) for key in todo.deletes} - set(nodes)
    short = sorted((str(each.segment), each.replicas) for each in records if each.replicas > len(nodes))
    return Assigned(
        len(records), tuple(sorted(nodes)), most, len(wanted), len(writes), tuple(sorted(left_out)), tuple(short)
    )


def visible(records: RangeResult, manifests: RangeResult) -> Iterator[tuple[SegmentRecord, int]]:
    """The used segments of complete publications, with the revisions of their records. Raises DamagedRow."""
    known = {kv.key: Manifest.from_bytes(kv.key, kv.value) for kv in manifests.kvs}
    for kv in records.kvs:
        record = SegmentRecord.from_bytes(kv.key, kv.value)
        manifest = known.get(Manifest(record.segment.data_source).key)
        if record.used and manifest is not None and manifest.is_visible(record):
            yield record, kv.mod_revision


@dataclass(frozen=True, slots=True)
class AssignmentWrite:
    """`unchanged`: a record that must still have this revision. `guard`: further compares."""

    operation: Put | DeleteRange
    unchanged: tuple[bytes, int] | None = None
    guard: tuple[Compare, ...] = ()


async def guards(
    store: AssignmentStore, records: Iterable[SegmentRecord], replicas: int
) -> dict[bytes, tuple[Compare, ...]]:
    """The records that get this replication factor, by key. Raises NotAllowed if it would hide rows that an ingester
    receives."""
    found = {}
    for record in records:
        if unsettles(record, record.with_replicas(replicas)):
            change = record, record.with_replicas(replicas)
            found[record.segment.key] = tuple(await beside_growing(store, record.segment.data_source, [change]))
    return found


def with_factor(
    records: Mapping[SegmentRecord, int], replicas: int | None
) -> tuple[list[SegmentRecord], list[AssignmentWrite]]:
    """The records with this replication factor, and the writes that set it."""
    if replicas is None:
        return list(records), []
    changed = {each: each.with_replicas(replicas) for each in records}
    writes = [
        AssignmentWrite(Put(now.segment.key, now.to_bytes()), (now.segment.key, records[each]))
        for each, now in changed.items()
        if now != each
    ]
    return list(changed.values()), writes


def is_of(key: bytes, prefix: str) -> bool:
    """Whether `key` is an assignment of a segment with this prefix. The segment's name is not validated."""
    if not key.startswith(ASSIGNMENTS):
        return False
    _, _, name = key.removeprefix(ASSIGNMENTS).partition(b"/")
    return name.startswith(prefix.encode())


def node_of(key: bytes) -> str:
    """Of an assignment."""
    return key.removeprefix(ASSIGNMENTS).partition(b"/")[0].decode("utf-8", "backslashreplace")


async def _write(
    store: AssignmentStore, last: int, writes: Sequence[AssignmentWrite], head: tuple[bytes, bytes], progress: Progress
) -> None:
    progress(0, len(writes))
    last = await _hold(store, last, [AssignmentWrite(Put(*head))])
    for start in range(0, len(writes), OPERATIONS):
        await _hold(store, last, writes[start : start + OPERATIONS])
        progress(min(start + OPERATIONS, len(writes)), len(writes))


async def _hold(store: AssignmentStore, last: int, writes: Sequence[AssignmentWrite]) -> int:
    """Write, if no other assignment has begun. Returns the revision. Raises AssignmentOvertaken."""
    expected = [(LAST_ASSIGNMENT, last), *(each.unchanged for each in writes if each.unchanged is not None)]
    unchanged = [Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision) for key, revision in expected]
    unchanged += {compare: None for each in writes for compare in each.guard}
    result = await store.segments_txn(unchanged, [each.operation for each in writes])
    if not result.succeeded:
        raise AssignmentOvertaken(
            "another assignment, or a change of these segments, began during this assignment, which stopped "
            "midway: check with palisade segments nodes, and repeat"
        )
    return result.revision


def assigned_by_node(present: RangeResult) -> dict[str, dict[str, Wanted]]:
    """Assignments by node, from all keys below ASSIGNMENTS; invalid ones are skipped."""
    found: dict[str, dict[str, Wanted]] = {}
    for kv in present.kvs:
        node, _, name = kv.key.removeprefix(ASSIGNMENTS).decode("utf-8", "backslashreplace").partition("/")
        try:
            found.setdefault(node, {})[checked_name(name)] = wanted_of(kv.value)
        except BadSegment:
            continue
    return found
