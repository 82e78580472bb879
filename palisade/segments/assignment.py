"""Assigns segments to nodes by rendezvous hashing, and computes the writes for it. Pure.

Every node has a score for every segment, a hash of both names; the nodes with the highest scores store it. Thus equal
nodes and segments give equal assignments, and adding or removing a node moves only segments of that node (Thaler,
Ravishankar 1998).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from palisade.catalog.segment import SegmentRecord
from palisade.segments.names import LAST_ASSIGNMENT, Wanted, assignment_key


@dataclass(frozen=True, slots=True)
class AssignmentChanges:
    """Writes to keys below ASSIGNMENTS."""

    puts: tuple[tuple[bytes, bytes], ...]
    deletes: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.puts) + len(self.deletes)


def score(node: str, name: str) -> bytes:
    return hashlib.blake2b(f"{node}\0{name}".encode(), digest_size=8).digest()


def holders(name: str, nodes: Iterable[str], replicas: int) -> list[str]:
    """The nodes that store it, the highest score first."""
    return sorted(nodes, key=lambda node: (score(node, name), node), reverse=True)[:replicas]


def assign(records: Iterable[SegmentRecord], nodes: Sequence[str]) -> dict[bytes, bytes]:
    """Key -> value of every assignment. The replication factor of a segment is the number of its assignments."""
    return {
        assignment_key(node, name): Wanted(record.digest, record.size_bytes).to_value()
        for record in records
        for name in [str(record.segment)]
        for node in holders(name, nodes, record.replicas)
    }


def changes(present: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> AssignmentChanges:
    """The writes that turn `present` into `wanted`. Puts come first, so new copies are made before old ones go."""
    puts = tuple((key, value) for key, value in sorted(wanted.items()) if present.get(key) != value)
    return AssignmentChanges(puts, tuple(sorted(present.keys() - wanted.keys())))


def last_assignment(nodes: Sequence[str], replicas: int | None, prefix: str) -> tuple[bytes, bytes]:
    """The key and value that are written first. If another assignment changes the key, this one has been overtaken."""
    record = {"nodes": sorted(nodes), "prefix": prefix, "replicas": replicas}
    return LAST_ASSIGNMENT, json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
