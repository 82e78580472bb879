"""Encodes messages as datagrams, and decodes them. Pure.

    magic "PSWM" | protocol version 1 byte | kind 1 byte | cluster 8 bytes | checksum 8 bytes | msgpack body

`cluster` is the hash of the cluster's name and keeps the nodes of two clusters apart. The checksum covers everything
else and is keyed with that hash. Magic, version, kind and cluster have the same place in every version, so that a node
of another version can be answered (`Stranger`). An invalid datagram is dropped as a whole, with a reason.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgpack

from palisade.topology.swim.messages import Ack, Message, Ping, PingRequest, RosterDigest, RosterMessage
from palisade.topology.swim.record import Record, SwimIdentity, SwimState

MAGIC = b"PSWM"
VERSION = 1
DATAGRAM_BYTES_MAX = 1_400
"""Fits a usual Ethernet frame: a fragmented datagram is lost if any fragment is."""
RUMOUR_BYTES_MAX = 880
"""Space for records in one message; the other fields fit the rest."""
HEAD_BYTES = 22
TEXT_BYTES_MAX = 300
INCARNATION_RECEIVED_MAX = 1 << 62
"""A record with a greater incarnation is rejected: its node could not refute it."""


class SwimMessageKind(enum.IntEnum):
    PING = 1
    PING_REQUEST = 2
    ACK = 3
    DIGEST = 4
    ROSTER = 5
    STRANGER = 6


class DropReason(enum.Enum):
    """Why a datagram is dropped."""

    TOO_LARGE = "too-large"
    NOT_OURS = "not-ours"
    OTHER_VERSION = "other-version"
    OTHER_CLUSTER = "other-cluster"
    DAMAGED = "damaged"
    MALFORMED = "malformed"


class Dropped(Exception):
    """`kind`: of the datagram, 0 if unknown. `version`: the sender's."""

    def __init__(self, reason: DropReason, kind: int = 0, version: int = VERSION) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.kind = kind
        self.version = version


@dataclass(frozen=True, slots=True)
class Stranger:
    """The answer to a digest of another cluster or version: why it is not processed."""

    reason: str


class Wire:
    """Encodes and decodes the datagrams of the cluster named `cluster`."""

    def __init__(self, cluster: str) -> None:
        self._cluster = _hash(cluster.encode())

    def encode(self, message: Message | Stranger) -> bytes:
        """Raises ValueError for a message that does not fit."""
        kind, fields = _ENCODERS[type(message)](message)
        body: bytes = msgpack.packb(fields)
        head = MAGIC + bytes((VERSION, kind)) + self._cluster
        datagram = head + _hash(head + body, self._cluster) + body
        if len(datagram) > DATAGRAM_BYTES_MAX:
            raise ValueError(f"{type(message).__name__} of {len(datagram)} bytes exceeds {DATAGRAM_BYTES_MAX} bytes")
        return datagram

    def decode(self, datagram: bytes) -> Message | Stranger:
        """Raises Dropped. A Stranger is accepted from any cluster and version, because that is its purpose."""
        if len(datagram) > DATAGRAM_BYTES_MAX:
            raise Dropped(DropReason.TOO_LARGE)
        if len(datagram) < HEAD_BYTES or datagram[:4] != MAGIC:
            raise Dropped(DropReason.NOT_OURS)
        version, kind = datagram[4], datagram[5]
        head, checksum, body = datagram[:14], datagram[14:HEAD_BYTES], datagram[HEAD_BYTES:]
        cluster = head[6:]
        if kind != SwimMessageKind.STRANGER:
            if version != VERSION:
                raise Dropped(DropReason.OTHER_VERSION, kind, version)
            if cluster != self._cluster:
                raise Dropped(DropReason.OTHER_CLUSTER, kind, version)
        if checksum != _hash(head + body, cluster):
            raise Dropped(DropReason.DAMAGED, kind, version)
        try:
            return _DECODERS[kind](_fields(msgpack.unpackb(body)))
        except (ValueError, TypeError, KeyError, AttributeError, msgpack.exceptions.UnpackException):
            raise Dropped(DropReason.MALFORMED, kind, version) from None


def _fields(value: Any) -> Any:
    """Rejects a string or a map, which would unpack like a list."""
    if type(value) is not list:
        raise TypeError("a message must be a list")
    return value


def record_bytes(record: Record) -> int:
    """Bytes of a record in a message."""
    return len(msgpack.packb(_record_fields(record)))


def _hash(content: bytes, key: bytes = b"") -> bytes:
    return blake2b(content, digest_size=8, key=key, person=b"palisade").digest()


def _record_fields(record: Record) -> list[Any]:
    tags = [text for pair in record.tags for text in pair]
    return [record.name, record.address, record.instance, record.incarnation, int(record.state), tags]


def _record(fields: Any) -> Record:
    name, address, instance, incarnation, state, tags = fields
    texts = [_text(each) for each in tags]
    if len(texts) % 2 or type(incarnation) is not int or incarnation > INCARNATION_RECEIVED_MAX:
        raise ValueError("a record has an odd number of tag fields, or an invalid incarnation")
    pairs = tuple(zip(texts[::2], texts[1::2], strict=True))
    return Record(_text(name), _text(address), _text(instance), incarnation, SwimState(state), pairs)


def _records(fields: Any) -> tuple[Record, ...]:
    return tuple(_record(each) for each in fields)


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > TEXT_BYTES_MAX + 100:
        raise ValueError("expected a text")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError("expected a number of 64 bits")
    return value


def _flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("expected true or false")
    return value


def _identity(name: Any, instance: Any) -> SwimIdentity:
    return SwimIdentity(_text(name), _text(instance))


def _with_rumours(message: Message, *fields: Any) -> list[Any]:
    source = message.source
    return [source.name, source.instance, *fields, [_record_fields(each) for each in message.rumours]]


_ENCODERS: dict[type, Callable[[Any], tuple[SwimMessageKind, list[Any]]]] = {
    Ping: lambda m: (SwimMessageKind.PING, _with_rumours(m, m.number, m.target.name, m.target.instance)),
    PingRequest: lambda m: (
        SwimMessageKind.PING_REQUEST,
        _with_rumours(m, m.number, m.target.name, m.target.instance, m.address),
    ),
    Ack: lambda m: (SwimMessageKind.ACK, _with_rumours(m, m.number, m.witness.name, m.witness.instance)),
    RosterDigest: lambda m: (SwimMessageKind.DIGEST, _with_rumours(m, m.digest)),
    RosterMessage: lambda m: (SwimMessageKind.ROSTER, _with_rumours(m, m.answer)),
    Stranger: lambda m: (SwimMessageKind.STRANGER, [m.reason[:TEXT_BYTES_MAX]]),
}


def _decode_ping(fields: Any) -> Ping:
    name, instance, number, target, target_instance, rumours = fields
    return Ping(_identity(name, instance), _number(number), _identity(target, target_instance), _records(rumours))


def _decode_ping_request(fields: Any) -> PingRequest:
    name, instance, number, target, target_instance, address, rumours = fields
    target_identity = _identity(target, target_instance)
    return PingRequest(_identity(name, instance), _number(number), target_identity, _text(address), _records(rumours))


def _decode_ack(fields: Any) -> Ack:
    name, instance, number, witness, witness_instance, rumours = fields
    return Ack(_identity(name, instance), _number(number), _identity(witness, witness_instance), _records(rumours))


def _decode_digest(fields: Any) -> RosterDigest:
    name, instance, digest, rumours = fields
    return RosterDigest(_identity(name, instance), _number(digest), _records(rumours))


def _decode_roster(fields: Any) -> RosterMessage:
    name, instance, answer, rumours = fields
    return RosterMessage(_identity(name, instance), _flag(answer), _records(rumours))


def _decode_stranger(fields: Any) -> Stranger:
    (reason,) = fields
    return Stranger(_text(reason))


_DECODERS: dict[int, Callable[[Any], Message | Stranger]] = {
    SwimMessageKind.PING: _decode_ping,
    SwimMessageKind.PING_REQUEST: _decode_ping_request,
    SwimMessageKind.ACK: _decode_ack,
    SwimMessageKind.DIGEST: _decode_digest,
    SwimMessageKind.ROSTER: _decode_roster,
    SwimMessageKind.STRANGER: _decode_stranger,
}
