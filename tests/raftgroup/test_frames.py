"""Incomplete frames wait, hostile ones are refused (scenarios.md, "Everywhere": garbage, half frames, 2 GiB)."""

from __future__ import annotations

import struct
import time
import tracemalloc
import zlib
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palisade.base.frames import Encoder, FrameCorrupt, FrameError, FrameParser, FrameTooLarge, encode

BODIES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
FRAMES = st.lists(st.tuples(st.integers(0, 255), BODIES), max_size=8)


def raw_frame(kind: int, packed: bytes) -> bytes:
    """A frame around any bytes, with a valid checksum."""
    return struct.pack(">IBI", len(packed) + 5, kind, zlib.crc32(bytes((kind,)) + packed)) + packed


@given(frames=FRAMES, cuts=st.lists(st.integers(0, 400)))
def test_parser_returns_frames_for_any_split(frames: list[tuple[int, Any]], cuts: list[int]) -> None:
    stream = b"".join(encode(kind, body) for kind, body in frames)
    parser, got, start = FrameParser(), [], 0
    for cut in (*sorted(cuts), len(stream)):
        got += parser.feed(stream[start:cut])
        start = max(start, cut)
    assert got == frames
    assert parser.kept_bytes == 0


def test_frame_has_the_documented_layout() -> None:
    packed = msgpack.packb(["x", b"y"])
    assert encode(7, ["x", b"y"]) == raw_frame(7, packed)


def test_encoder_continues_after_a_refused_body() -> None:
    encoder = Encoder()
    with pytest.raises(TypeError):
        encoder.encode(1, ["good", object()])
    assert FrameParser().feed(encoder.encode(1, "next")) == [(1, "next")]


def test_parser_waits_for_the_rest_of_a_frame() -> None:
    frame, parser = encode(3, b"body"), FrameParser()
    for byte in frame[:-1]:
        assert parser.feed(bytes((byte,))) == []
    assert parser.feed(frame[-1:]) == [(3, b"body")]


def test_announced_two_gibibytes_are_refused_by_length_alone() -> None:
    parser = FrameParser()
    with pytest.raises(FrameTooLarge) as caught:
        parser.feed(struct.pack(">I", 2**31))
    assert caught.value.announced_bytes == 2**31
    assert "2147483648" in str(caught.value)
    assert parser.kept_bytes <= 4


def test_parser_keeps_only_the_received_part_of_a_large_frame() -> None:
    parser = FrameParser()
    tracemalloc.start()
    parser.feed(struct.pack(">IBI", 60_000_000, 1, 0) + b"x")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000


def test_frame_limit_is_exact_and_can_be_raised() -> None:
    frame = encode(1, b"x" * 100)
    length = len(frame) - 4
    assert FrameParser(length).feed(frame) == [(1, b"x" * 100)]
    parser = FrameParser(length - 1)
    with pytest.raises(FrameTooLarge):
        parser.feed(frame)
    parser = FrameParser(10)
    parser.frame_bytes_max = length
    assert parser.feed(frame) == [(1, b"x" * 100)]


@pytest.mark.parametrize("length", [0, 1, 5])
def test_frame_without_a_body_is_corrupt(length: int) -> None:
    with pytest.raises(FrameCorrupt):
        FrameParser().feed(struct.pack(">I", length))


def test_every_flipped_bit_is_detected() -> None:
    frame = encode(9, ["put", b"key", b"value"])
    for bit in range(8 * len(frame)):
        flipped = bytearray(frame)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            frames = FrameParser(1000).feed(bytes(flipped))
        except FrameError:
            continue
        assert frames == []
        assert bit < 32, "only a changed length may leave the parser waiting"


@given(st.binary())
def test_garbage_is_refused_or_waited_for(garbage: bytes) -> None:
    parser = FrameParser(1 << 16)
    try:
        assert parser.feed(garbage) == []
    except FrameError:
        return
    assert parser.kept_bytes == len(garbage)


@given(st.binary(min_size=1))
def test_garbage_body_with_a_valid_checksum_raises_only_frame_corrupt(packed: bytes) -> None:
    try:
        ((kind, body),) = FrameParser().feed(raw_frame(1, packed))
    except FrameCorrupt:
        return
    assert (kind, body) == (1, msgpack.unpackb(packed))


@pytest.mark.parametrize(
    "packed",
    [
        pytest.param(b"\x91" * 100_000 + b"\x01", id="lists nested 100,000 deep"),
        pytest.param(b"\x81\xa1k" * 100_000 + b"\x01", id="maps nested 100,000 deep"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="a list that announces four thousand million items"),
        pytest.param(b"\xdf\xff\xff\xff\xff", id="a map that announces four thousand million items"),
        pytest.param(b"\xc6\xff\xff\xff\xff", id="four gigabytes of bytes announced"),
        pytest.param(b"\x81\x91\x01\x02", id="a list as the key of a map"),
        pytest.param(b"\x81\x01\x02", id="a number as the key of a map"),
        pytest.param(b"\xd4\x01\x00", id="extension type"),
        pytest.param(b"\xc7\x00\x05", id="empty extension type"),
        pytest.param(b"\xd6\xff\x00\x00\x00\x00", id="timestamp"),
        pytest.param(b"\xa1\xff", id="text that is not UTF-8"),
        pytest.param(b"\x01\x02", id="two values"),
        pytest.param(b"\xc1", id="the byte that msgpack never uses"),
        pytest.param(b"\x92\x01", id="a value cut short"),
    ],
)
def test_hostile_bodies_are_refused(packed: bytes) -> None:
    with pytest.raises(FrameCorrupt) as caught:
        FrameParser().feed(raw_frame(1, packed))
    assert len(str(caught.value)) < 300


def test_too_many_items_are_refused() -> None:
    assert FrameParser(items_max=3).feed(encode(1, [1, 2, 3])) == [(1, [1, 2, 3])]
    with pytest.raises(FrameCorrupt):
        FrameParser(items_max=2).feed(encode(1, [1, 2, 3]))


def test_small_frames_are_parsed_fast_enough_for_the_stream() -> None:
    """Target of issue 2: 400,000/s; a tenth of it must hold on any machine unless something is quadratic."""
    count = 20_000
    stream = encode(16, [17, "put", b"k" * 20, b"v" * 60]) * count
    started = time.perf_counter()
    parser = FrameParser()
    got = sum(len(parser.feed(stream[at : at + 65_536])) for at in range(0, len(stream), 65_536))
    assert got == count
    assert count / (time.perf_counter() - started) > 40_000
