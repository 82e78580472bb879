"""What the cluster remembers about itself and about each node, as values and as bytes. Pure.

Kept as system records of the meta storage (`metastore/system_records.py`): `cluster` holds the rules, `node/<name>` a
node. A node that is gone keeps its record, because its incarnation must never be given out a second time.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack

from metastore.errors import StoreCorrupt

RULES_NAME = "cluster"
NODE_PREFIX = "node/"
PROTOCOL_VERSION = 1
"""Of joining: what nodes of one cluster say to each other about topology."""

R = TypeVar("R")


class Standing(enum.Enum):
    """Where a node stands. Only ACTIVE ones are the logical topology."""

    VALIDATED = "validated"
    ACTIVE = "active"
    GONE = "gone"


class Role(enum.Enum):
    """VOTER: a member of the Raft group, learners included. FOLLOWER: none, it keeps a vault by the change feed."""

    VOTER = "voter"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """How the cluster was initialized. `token`: salt and hash of the permission to join, empty where none is needed.

    `members`: the nodes that it was initialized with, in order of their names.
    """

    cluster: str
    protocol: int
    token: bytes
    members: tuple[str, ...]

    def to_bytes(self) -> bytes:
        return _pack([self.cluster, self.protocol, self.token, list(self.members)])

    @staticmethod
    def from_bytes(packed: bytes) -> ClusterRules:
        """Raises StoreCorrupt."""

        def read(cluster: str, protocol: int, token: bytes, members: list[str]) -> ClusterRules:
            return ClusterRules(cluster, protocol, token, tuple(members))

        return _unpack(packed, read, "the rules of the cluster")


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """`instance`: the process, as SWIM knows it; `attempt`: which of its join requests this answers. `incarnation`
    grows by one with every join of the name. `recovered`: LV when it had recovered. `reason`: why it is gone."""

    name: str
    role: Role
    standing: Standing
    instance: str
    attempt: int
    incarnation: int
    addresses: Mapping[str, str]
    recovered: int = 0
    reason: str = ""

    @property
    def key(self) -> str:
        return NODE_PREFIX + self.name

    def to_bytes(self) -> bytes:
        return _pack(
            [
                self.name, self.role.value, self.standing.value, self.instance, self.attempt, self.incarnation,
                dict(sorted(self.addresses.items())), self.recovered, self.reason,
            ]
        )  # fmt: skip

    @staticmethod
    def from_bytes(packed: bytes) -> NodeRecord:
        """Raises StoreCorrupt."""

        def read(name: str, role: str, standing: str, *rest: Any) -> NodeRecord:
            return NodeRecord(name, Role(role), Standing(standing), *rest)

        return _unpack(packed, read, "a node")


def _pack(fields: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def _unpack(packed: bytes, read: Callable[..., R], what: str) -> R:
    try:
        return read(*msgpack.unpackb(packed))
    except (ValueError, TypeError, msgpack.UnpackException):
        raise StoreCorrupt(
            f"the record of {what} can't be read: {packed[:64]!r}. A newer version may have written it: start that "
            "one; else let the node join again with an empty data directory"
        ) from None
