"""What nodes say to each other, as values; `wire.py` makes datagrams of them. Pure.

Every message says who sends it, and carries rumours: records that the sender wants to spread. The failure detector
sends them on anyway, so spreading them costs no datagram (SWIM, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from node.swim.record import Identity, Record

Rumours = tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Are you there, you the instance `target`? Another instance at that address answers for itself."""

    source: Identity
    number: int
    target: Identity
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Ping `target` at `address` for me, and pass its answer on under `number`."""

    source: Identity
    number: int
    target: Identity
    address: str
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """`witness` is there: the sender itself, or whom it pinged for the receiver."""

    source: Identity
    number: int
    witness: Identity
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class Digest:
    """All live records that the sender knows, as one number. Who has another one answers with what it has."""

    source: Identity
    digest: int
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class Roster:
    """A part of the live records of the sender, as rumours. `answer`: the sender wants those of the receiver, too."""

    source: Identity
    answer: bool
    rumours: Rumours = ()


Message = Ping | PingRequest | Ack | Digest | Roster


def with_rumours(message: Message, rumours: Rumours) -> Message:
    return replace(message, rumours=rumours)
