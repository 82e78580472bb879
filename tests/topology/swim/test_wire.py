"""Datagrams: what fits, what comes back, and what is dropped with its reason (issue 3, "Bad input")."""

from __future__ import annotations

import contextlib

import msgpack
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palisade.topology.swim.messages import Ack, Message, Ping, PingRequest, RosterDigest, RosterMessage
from palisade.topology.swim.record import Record, SwimIdentity, SwimState, sorted_tags
from palisade.topology.swim.wire import (
    DATAGRAM_BYTES_MAX,
    RUMOUR_BYTES_MAX,
    Dropped,
    DropReason,
    Stranger,
    SwimMessageKind,
    Wire,
    record_bytes,
)

names = st.text("abcxyz019.-_", min_size=1, max_size=63)
instances = st.text("0123456789abcdef", min_size=1, max_size=32)
addresses = st.builds(
    lambda host, port: f"{host}:{port}", st.text("abc.", min_size=1, max_size=253), st.integers(1, 65535)
)
numbers = st.integers(0, (1 << 64) - 1)
identities = st.builds(SwimIdentity, names, instances)
tags = st.dictionaries(st.text(max_size=10), st.text(max_size=12), max_size=6).map(sorted_tags)
records = st.builds(
    Record, names, addresses, instances, st.integers(0, (1 << 62) - 1), st.sampled_from(SwimState), tags
)


def that_fit(found: list[Record]) -> tuple[Record, ...]:
    taken: list[Record] = []
    for record in found:
        if record_bytes(record) + sum(map(record_bytes, taken)) <= RUMOUR_BYTES_MAX:
            taken.append(record)
    return tuple(taken)


rumours = st.lists(records, max_size=6).map(that_fit)
messages = st.one_of(
    st.builds(Ping, identities, numbers, identities, rumours),
    st.builds(PingRequest, identities, numbers, identities, addresses, rumours),
    st.builds(Ack, identities, numbers, identities, rumours),
    st.builds(RosterDigest, identities, numbers, rumours),
    st.builds(RosterMessage, identities, st.booleans(), rumours),
)


@given(messages)
def test_every_message_fits_and_decodes_to_itself(message: Message) -> None:
    datagram = Wire("c1").encode(message)
    assert len(datagram) <= DATAGRAM_BYTES_MAX
    assert Wire("c1").decode(datagram) == message


def ping() -> Ping:
    return Ping(SwimIdentity("n1", "a"), 7, SwimIdentity("n2", "b"), (Record("n3", "n3:1", "c"),))


def reason(datagram: bytes) -> DropReason:
    with pytest.raises(Dropped) as dropped:
        Wire("c1").decode(datagram)
    return dropped.value.reason


@given(st.binary(max_size=2000))
def test_garbage_is_dropped(datagram: bytes) -> None:
    assert reason(datagram) in (DropReason.NOT_OURS, DropReason.TOO_LARGE)


@given(st.integers(0, 8 * 60 - 1))
def test_datagram_with_a_flipped_bit_is_dropped(bit: int) -> None:
    datagram = bytearray(Wire("c1").encode(ping()))
    datagram[bit // 8 % len(datagram)] ^= 1 << bit % 8
    assert isinstance(reason(bytes(datagram)), DropReason)


@given(st.integers(0, 70))
def test_truncated_datagram_is_dropped(length: int) -> None:
    datagram = Wire("c1").encode(ping())
    assert isinstance(reason(datagram[: min(length, len(datagram) - 1)]), DropReason)


def test_drop_reasons_distinguish_cluster_version_and_size() -> None:
    assert reason(Wire("c2").encode(ping())) is DropReason.OTHER_CLUSTER
    datagram = bytearray(Wire("c1").encode(ping()))
    datagram[4] = 9
    assert reason(bytes(datagram)) is DropReason.OTHER_VERSION
    assert reason(bytes(2 << 20)) is DropReason.TOO_LARGE


def test_stranger_message_decodes_across_clusters_and_versions() -> None:
    datagram = Wire("c2").encode(Stranger("this node belongs to cluster c2"))
    assert Wire("c1").decode(datagram) == Stranger("this node belongs to cluster c2")


@example(["", "", None, []], SwimMessageKind.ROSTER)
@given(
    st.recursive(st.none() | st.integers(-5, 5) | st.text(max_size=3) | st.binary(max_size=3), st.lists),
    st.sampled_from(SwimMessageKind),
)
def test_datagram_with_an_invalid_body_is_dropped(body: object, kind: SwimMessageKind) -> None:
    """With the right checksum: from a program that has a fault, or means ill."""
    from palisade.topology.swim import wire

    head = wire.MAGIC + bytes((wire.VERSION, kind)) + wire._hash(b"c1")
    packed = msgpack.packb(body)
    datagram = head + wire._hash(head + packed, head[6:]) + packed
    with pytest.raises(Dropped, match="malformed") if not understood(body, kind) else contextlib.nullcontext():
        Wire("c1").decode(datagram)


def understood(body: object, kind: SwimMessageKind) -> bool:
    """Of these bodies only a list of one text means something: as a word to a stranger."""
    return kind is SwimMessageKind.STRANGER and isinstance(body, list) and len(body) == 1 and isinstance(body[0], str)


def test_oversized_message_is_rejected() -> None:
    with pytest.raises(ValueError, match="exceeds 1400 bytes"):
        Wire("c1").encode(
            RosterMessage(SwimIdentity("n1", "a"), False, tuple(Record(f"n{n}", "h:1", "i") for n in range(200)))
        )


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": "n" * 64},
        {"address": "a" * 300},
        {"instance": "i" * 33},
        {"incarnation": -1},
        {"incarnation": 1 << 63},
        {"tags": (("k", "v" * 500),)},
        {"tags": tuple((str(number), "") for number in range(9))},
    ],
)
def test_record_that_does_not_fit_a_message_is_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        Record(**{"name": "n1", "address": "n1:1", "instance": "i", **wrong})  # type: ignore[arg-type]
