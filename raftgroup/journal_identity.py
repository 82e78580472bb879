"""The identity stored in a journal: cluster, member, incarnation, and the membership at its base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgpack

from palisade.raftgroup.errors import DataDirectoryError
from palisade.raftgroup.membership import Membership
from palisade.raftgroup.ports import Journal, Random

_CLUSTER, _MEMBER, _INCARNATION, _MEMBERSHIP, _PINS = "cluster", "member", "incarnation", "membership", "pins"
_INCOMING, _GENERATION, _ORIGIN = "incoming", "generation", "origin"


@dataclass(frozen=True, slots=True)
class StoredIdentity:
    """`membership` is None while the node has never known one: it founds a group, or joins one.

    `pins`: the storages of the other founding members, as first seen. `generation`: of the restored state, or of the
    log that it takes; 0 for a founder that started empty, and for a node without data. `origin`: of the restored
    backup, or empty.
    """

    incarnation: str
    membership: Membership | None
    pins: dict[str, str]
    generation: int = 0
    origin: str = ""


def open_storage(journal: Journal, cluster: str, member: str, random: Random) -> StoredIdentity:
    """Read the identity of the journal; give a new one this cluster and member.

    Raises DataDirectoryError for the journal of another cluster or member. Nothing is durable before the next sync.
    """
    stored_incarnation = journal.get_meta(_INCARNATION)
    if stored_incarnation is None:
        incarnation = f"{int(random.random() * (1 << 53)):014x}"
        for name, value in ((_CLUSTER, cluster), (_MEMBER, member), (_INCARNATION, incarnation)):
            journal.set_meta(name, value.encode())
        return StoredIdentity(incarnation, None, {})
    _check_same("cluster", journal.get_meta(_CLUSTER), cluster)
    _check_same("node", journal.get_meta(_MEMBER), member)
    packed = journal.get_meta(_MEMBERSHIP)
    membership = None if packed is None else Membership.from_wire(msgpack.unpackb(packed))
    pins = journal.get_meta(_PINS)
    holds_something = journal.last.index > 0 or any(map(journal.get_meta, (_INCOMING, _ORIGIN)))
    return StoredIdentity(
        stored_incarnation.decode(),
        membership,
        {} if pins is None else msgpack.unpackb(pins),
        int(journal.get_meta(_GENERATION) or b"0") if holds_something else 0,
        (journal.get_meta(_ORIGIN) or b"").decode(),
    )


def keep_restored(journal: Journal, applied: tuple[int, int], generation: int, origin: str) -> None:
    """For a new storage with a restored state at `applied`; durable with the next sync."""
    index, term = applied
    keep_generation(journal, generation)
    journal.set_meta(_ORIGIN, origin.encode())
    journal.reset(index, term)
    journal.set_term(term, None)


def keep_generation(journal: Journal, generation: int) -> None:
    """The generation of the log that a new storage is about to take; durable with the next sync, like its entries."""
    journal.set_meta(_GENERATION, str(generation).encode())


def stored_names(journal: Journal) -> tuple[str, str] | None:
    """(cluster, member) that the journal belongs to; None for a new one."""
    cluster, member = journal.get_meta(_CLUSTER), journal.get_meta(_MEMBER)
    return None if cluster is None or member is None else (cluster.decode(), member.decode())


def is_provisional(membership: Membership) -> bool:
    """Whether it is the membership of a founding member that has not seen all others yet: it names no storage."""
    return membership.version == 0


def keep_membership(journal: Journal, membership: Membership) -> None:
    """The membership at the base of the log, from the next sync on. A provisional one is not stored: the group may have
    been founded by others, and after a restart this node must still learn of that.
    """
    if is_provisional(membership):
        return
    journal.set_meta(_MEMBERSHIP, msgpack.packb(membership.to_wire()))


def keep_pins(journal: Journal, pins: Mapping[str, str]) -> None:
    """The storages of the founding members, as they were first seen; durable with the next sync."""
    journal.set_meta(_PINS, msgpack.packb(dict(pins)))


def keep_incoming(journal: Journal, index: int, term: int, membership: Membership) -> None:
    """The membership of a snapshot that is about to become the state; durable with the next sync."""
    journal.set_meta(_INCOMING, msgpack.packb([index, term, membership.to_wire()]))


def realigned(journal: Journal, applied: tuple[int, int], membership: Membership | None) -> Membership | None:
    """The membership at the beginning of the log, after the log was adapted to a state at `applied`.

    They differ after a crash between the install of a snapshot and the reset of the log. Raises DataDirectoryError if
    they differ for another reason: then one of the two was lost or replaced.
    """
    index, term = applied
    first, last = journal.first.index, journal.last.index
    if first <= index <= last and (index == first or journal.term_at(index) == term):
        return membership
    incoming = journal.get_meta(_INCOMING)
    if index > first and incoming is not None:
        installed_index, installed_term, wire = msgpack.unpackb(incoming)
        if (installed_index, installed_term) == applied:
            journal.reset(index, term)
            installed = Membership.from_wire(wire)
            keep_membership(journal, installed)
            return installed
    raise DataDirectoryError(
        f"the store of this node is at index {index} of term {term}, its log reaches from {first} to {last}: one "
        "of them was lost or replaced. Put both back as they were, or start with --join and an empty data directory"
    )


def _check_same(what: str, stored: bytes | None, expected: str) -> None:
    if stored != expected.encode():
        raise DataDirectoryError(
            f"the data directory belongs to {what} {(stored or b'?').decode()}, not to {expected}: "
            "give this node its own directory, or an empty one"
        )
