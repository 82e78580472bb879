"""The SWIM messages, as values; `wire.py` encodes them as datagrams. Pure.

Every message names its sender and carries rumours: records that the sender spreads. The failure detector sends these
messages anyway, so gossip costs no extra datagram (SWIM, section 4.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from palisade.topology.swim.record import Record, SwimIdentity

Rumours = tuple[Record, ...]


@dataclass(frozen=True, slots=True)
class Ping:
    """Asks the instance `target` for an Ack. Another instance at that address acknowledges with its own identity."""

    source: SwimIdentity
    number: int
    target: SwimIdentity
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class PingRequest:
    """Asks the receiver to ping `target` at `address`, and to forward the Ack under `number`."""

    source: SwimIdentity
    number: int
    target: SwimIdentity
    address: str
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class Ack:
    """`witness` is alive: the sender itself, or the target of a PingRequest."""

    source: SwimIdentity
    number: int
    witness: SwimIdentity
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class RosterDigest:
    """A hash of all live records of the sender. A receiver with a different digest answers with its Roster."""

    source: SwimIdentity
    digest: int
    rumours: Rumours = ()


@dataclass(frozen=True, slots=True)
class RosterMessage:
    """Some of the sender's live records, as rumours. `answer`: the sender requests the receiver's roster in return."""

    source: SwimIdentity
    answer: bool
    rumours: Rumours = ()


Message = Ping | PingRequest | Ack | RosterDigest | RosterMessage
