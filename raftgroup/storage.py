"""What a journal says of whose it is: cluster, member, incarnation, and the membership at its base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgpack

from raftgroup.errors import DataDirectoryError
from raftgroup.membership import Membership
from raftgroup.ports import Journal, Random

_CLUSTER, _MEMBER, _INCARNATION, _MEMBERSHIP, _PINS = "cluster", "member", "incarnation", "membership", "pins"


@dataclass(frozen=True, slots=True)
class Stored:
    """`membership` is None while the node has never known one: it founds a group, or joins one.

    `pins`: the storages of the other founding members, as they were first seen.
    """

    incarnation: str
    membership: Membership | None
    pins: dict[str, str]


def open_storage(journal: Journal, cluster: str, member: str, random: Random) -> Stored:
    """Read whose journal this is; name a new one after this cluster and member.

    Raises DataDirectoryError for the journal of another cluster or member. Nothing is durable before the next sync.
    """
    stored_incarnation = journal.get_meta(_INCARNATION)
    if stored_incarnation is None:
        incarnation = f"{int(random.random() * (1 << 53)):014x}"
        for name, value in ((_CLUSTER, cluster), (_MEMBER, member), (_INCARNATION, incarnation)):
            journal.set_meta(name, value.encode())
        return Stored(incarnation, None, {})
    _check_same("cluster", journal.get_meta(_CLUSTER), cluster)
    _check_same("node", journal.get_meta(_MEMBER), member)
    packed = journal.get_meta(_MEMBERSHIP)
    membership = None if packed is None else Membership.from_wire(msgpack.unpackb(packed))
    pins = journal.get_meta(_PINS)
    return Stored(stored_incarnation.decode(), membership, {} if pins is None else msgpack.unpackb(pins))


def keep_membership(journal: Journal, membership: Membership) -> None:
    """The membership at the base of the log, from the next sync on."""
    journal.set_meta(_MEMBERSHIP, msgpack.packb(membership.to_wire()))


def keep_pins(journal: Journal, pins: Mapping[str, str]) -> None:
    """The storages of the founding members, as they were first seen; durable with the next sync."""
    journal.set_meta(_PINS, msgpack.packb(dict(pins)))


def _check_same(what: str, stored: bytes | None, expected: str) -> None:
    if stored != expected.encode():
        raise DataDirectoryError(
            f"the data directory belongs to {what} {(stored or b'?').decode()}, not to {expected}: "
            "give this node its own directory, or an empty one"
        )
