"""Which node keeps which partition: rendezvous hashing, and what has to be written to make it so. Pure.

Every node has a score for every partition, a hash of both names, and the highest ones keep it. So the same nodes and
partitions always give the same assignment, and a node that comes or goes moves only what it gets or had (Thaler,
Ravishankar 1998).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from node.partitions.names import LAST_ASSIGNMENT, Wanted, assignment_key


@dataclass(frozen=True, slots=True)
class Changes:
    """Of the keys below ASSIGNMENTS."""

    puts: tuple[tuple[bytes, bytes], ...]
    deletes: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.puts) + len(self.deletes)


def score(node: str, name: str) -> bytes:
    return hashlib.blake2b(f"{node}\0{name}".encode(), digest_size=8).digest()


def holders(name: str, nodes: Iterable[str], replicas: int) -> list[str]:
    """The nodes that keep it, the first one first."""
    return sorted(nodes, key=lambda node: (score(node, name), node), reverse=True)[:replicas]


def assign(partitions: Mapping[str, Wanted], nodes: Sequence[str], replicas: int) -> dict[bytes, bytes]:
    """Key -> value of every assignment."""
    return {
        assignment_key(node, name): wanted.to_value()
        for name, wanted in partitions.items()
        for node in holders(name, nodes, replicas)
    }


def changes(present: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> Changes:
    """What makes `wanted` of `present`. New copies come before old ones go."""
    puts = tuple((key, value) for key, value in sorted(wanted.items()) if present.get(key) != value)
    return Changes(puts, tuple(sorted(present.keys() - wanted.keys())))


def last_assignment(nodes: Sequence[str], replicas: int, prefix: str) -> tuple[bytes, bytes]:
    """The key that is written first: who sees another one there than its own has been overtaken, and stops."""
    said = {"nodes": sorted(nodes), "prefix": prefix, "replicas": replicas}
    return LAST_ASSIGNMENT, json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
