"""The replicated records of the cluster and of its nodes, as values and as bytes. Pure.

They are system records of the metadata store (`metastore/system_records.py`): `cluster` holds the rules, `node/<name>`
a node. The record of a node that is gone stays, so that its incarnation is never issued twice.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgpack

from palisade.base.key_text import key_text
from palisade.metastore.errors import StoreCorrupt

RULES_NAME = "cluster"
NODE_PREFIX = "node/"
PROTOCOL_VERSION = 1
"""Version of the join protocol: the topology requests between nodes of one cluster."""

R = TypeVar("R")


class NodeStanding(enum.Enum):
    """State of a node's record. The logical topology is the ACTIVE nodes."""

    VALIDATED = "validated"
    ACTIVE = "active"
    GONE = "gone"


class NodeRole(enum.Enum):
    """VOTER: a member of the Raft group, learners included. FOLLOWER: not a member; follows the change feed."""

    VOTER = "voter"
    FOLLOWER = "follower"


@dataclass(frozen=True, slots=True)
class ClusterRules:
    """How the cluster was initialized. `token`: salt and hash of the join token; empty if none is required.

    `members`: the founding members, sorted by name.
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
    """`instance`: the process, as in SWIM. `attempt`: number of the join request that this record answers.
    `incarnation`: grows by one with every join under the name. `recovered`: LV at the end of its recovery. `reason`:
    why it is gone."""

    name: str
    role: NodeRole
    standing: NodeStanding
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
            return NodeRecord(name, NodeRole(role), NodeStanding(standing), *rest)

        return _unpack(packed, read, "a node")


def _pack(fields: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def _unpack(packed: bytes, read: Callable[..., R], what: str) -> R:
    try:
        return read(*msgpack.unpackb(packed))
    except (ValueError, TypeError, msgpack.UnpackException):
        raise StoreCorrupt(
            f"unreadable record of {what}: {key_text(packed)}. If a newer version wrote it, start that version; "
            "otherwise let the node join again with an empty data directory"
        ) from None
