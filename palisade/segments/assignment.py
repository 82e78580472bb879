"""Assigns partitions to nodes by rendezvous hashing, and computes the writes for it. Pure.

Every node has a score for every partition, a hash of both names; the nodes with the highest scores store it. So equal
nodes and partitions give equal assignments, and adding or removing a node moves only partitions of that node (Thaler,
Ravishankar 1998).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

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


def assign(partitions: Mapping[str, Wanted], nodes: Sequence[str], replicas: int) -> dict[bytes, bytes]:
    """Key -> value of every assignment."""
    return {
        assignment_key(node, name): wanted.to_value()
        for name, wanted in partitions.items()
        for node in holders(name, nodes, replicas)
    }


def changes(present: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> AssignmentChanges:
    """The writes that turn `present` into `wanted`. Puts come first, so new copies are made before old ones go."""
    puts = tuple((key, value) for key, value in sorted(wanted.items()) if present.get(key) != value)
    return AssignmentChanges(puts, tuple(sorted(present.keys() - wanted.keys())))


def last_assignment(nodes: Sequence[str], replicas: int, prefix: str) -> tuple[bytes, bytes]:
    """The key and value that are written first. An assignment that finds another version there has been overtaken."""
    record = {"nodes": sorted(nodes), "prefix": prefix, "replicas": replicas}
    return LAST_ASSIGNMENT, json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
