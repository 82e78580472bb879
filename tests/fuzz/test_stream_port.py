"""The port of the stream of a real member: bytes that are damaged, and frames that are whole and make no sense.

Beyond tests/api/test_stream.py and tests/e2e/test_strangers.py, which have the cases known in advance (issue 5,
"Fuzzing"; scenarios.md, "Everywhere").
"""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import pytest

from palisade.base.frames import FRAME_BYTES_MAX, FrameParser, encode
from palisade.fencing.messages import (
    Behind,
    FencedMessage,
    GrantMessage,
    Hello,
    HolderId,
    HolderPhase,
    JoinMessage,
    Release,
    Renew,
    StagedMessage,
    StageMessage,
)
from palisade.metastore.command_codec import encode_command, operation_fields
from palisade.metastore.put_series import encode_series
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, LeaseGrant, Put, Range, Txn
from palisade.wire import fence_messages as wire
from palisade.wire.fence_messages import pack
from palisade.wire.stream_frames import PROTOCOL, FrameKind
from tests.support.fuzz_ground import FUZZ, Ground, say, watched
from tests.support.fuzzing import INTERESTING, Rounds, anything, changed, damaged

pytestmark = pytest.mark.e2e

HELLO = encode(FrameKind.HELLO, {"protocol": PROTOCOL, "client": "fuzz", "timeout_ms": 500, "follows": True})
KEY = FUZZ.encode() + b"k"
TXN = Txn((Compare(KEY, CompareTarget.VERSION, CompareResult.EQUAL, 0),), (Put(KEY, b"1"),), (DeleteRange(KEY),))
BESIDE = 20
"""Connections at a time."""

READS: list[tuple[int, Any]] = [
    (FrameKind.READS, [1, list(operation_fields(Range(KEY))), 2, list(operation_fields(Range(b"a", b"\0", limit=3)))]),
    (FrameKind.WATCH, [3, KEY, b"", 1, True, [], 100, 2]),
    (FrameKind.MORE, [3, 1]),
    (FrameKind.UNWATCH, [3]),
    (FrameKind.HELLO, {"protocol": PROTOCOL, "client": "fuzz", "timeout_ms": 500}),
    *((FrameKind.CALL, [number, name, []]) for number, name in enumerate(
        ["ping", "status", "members", "topology", "leases", "digest", "fencing"], 10
    )),
    (FrameKind.CALL, [20, "lease_info", [7]]),
    (FrameKind.CALL, [25, "scan_count", [b"a", b"\0", 0]]),
    (FrameKind.CALL, [26, "scan_rows", [b"a", b"\0", 1, ["", 1]]]),
    (FrameKind.CALL, [27, "scan_changes", [b"a", b"\0", [1, 0], 1, ["", 1]]]),
    (FrameKind.CALL, [30, "scan_since", [b"a", b"\0", 1]]),
    (FrameKind.CALL, [31, "scan_bytes", [b"a", b"\0", 1, 1, ["", 1], 1000]]),
    (FrameKind.CALL, [28, "pin", [b"a", b"\0", "job", 1, 1000]]),
    (FrameKind.CALL, [29, "unpin", [b"a", b"\0", "job"]]),
    (FrameKind.CALL, [21, "catalog_objects", ["tables", "", ""]]),
    (FrameKind.CALL, [22, "catalog_object", ["tables", "plant.readings"]]),
    (FrameKind.CALL, [23, "procedures", [True, 5]]),
    (FrameKind.CALL, [24, "procedure", ["p", 0.01]]),
]  # fmt: skip
WRITES: list[tuple[int, Any]] = [
    (FrameKind.WRITES, [1, encode_command(Put(KEY, b"value")), 2, encode_command(TXN)]),
    (FrameKind.WRITES, [3, encode_series(("fuzz", 1), [KEY, b"1", KEY, b"2"])]),
    (FrameKind.WRITES, [4, encode_command(LeaseGrant(5_000, 0))]),
    (FrameKind.CALL, [5, "catalog_do", ["create_database", {"database": "fuzz"}, "p1", 0.01]]),
    (FrameKind.CALL, [6, "procedure_cancel", ["p1"]]),
    (FrameKind.CALL, [7, "region_set", ["fuzz", b"\x80"]]),
    (FrameKind.CALL, [8, "region_delete", ["fuzz"]]),
    (FrameKind.CALL, [13, "segments_txn", [encode_command(TXN)]]),
    (FrameKind.CALL, [9, "transfer", ["n9"]]),
    (FrameKind.CALL, [10, "member_promote", ["n9"]]),
    (FrameKind.CALL, [11, "member_remove", ["n9"]]),
    (FrameKind.CALL, [12, "member_add", ["n1", "other", {"peer": "127.0.0.1:1"}, False]]),
]
FENCES: list[tuple[int, Any]] = [
    (FrameKind.FENCE, pack(message))
    for message in (
        Hello(HolderId("x1", "v", 3), True, 3.0, HolderPhase.ACTIVE, 2, True, 17, 20, 3.31),
        JoinMessage(2, 20),
        Renew(12.5, 17, HolderPhase.RECOVERING, True, 3.0, 3.31),
        StagedMessage(18),
        FencedMessage(4, 13.5),
        StageMessage(4, 2, 17, 30, ((18, b"k", b"body"), (30, b"l", None))),
        Behind(4, 2, 30),
        GrantMessage(4, 3, 12.5, 30),
        Release(4, 30),
    )
]


def bytes_of(frames: list[tuple[int, Any]]) -> bytes:
    return b"".join(encode(kind, body) for kind, body in frames)


async def test_damaged_frames_end_their_connection_and_change_nothing(ground: Ground, rounds: Rounds) -> None:
    """Without a new checksum: whatever is in a damaged frame is not looked at."""
    async with watched(ground.member, ground.member):
        for dice in rounds:
            sessions = []
            for _ in range(BESIDE):
                frames = dice.sample(READS + FENCES, 2)
                sound = bytes_of(frames[:1]) if dice.random() < 0.5 else b""
                broken = damaged(bytes_of(dice.sample(WRITES + FENCES + READS, 2)), dice)
                hello = damaged(HELLO, dice) if dice.random() < 0.1 else HELLO
                sessions.append(say(ground.member.stream, hello + sound + broken, dice, 0.02))
            await asyncio.gather(*sessions)


async def test_announced_gigabytes_after_the_greeting_are_not_waited_for(ground: Ground, rounds: Rounds) -> None:
    """Also in FENCE frames, which only nodes send."""
    async with watched(ground.member, ground.member):
        for dice in rounds:
            head = dice.choice([FRAME_BYTES_MAX + 1, (1 << 31) - 1, 1 << 31, (1 << 32) - 1]).to_bytes(4, "big")
            lie = (
                head
                + bytes([dice.choice([FrameKind.FENCE, FrameKind.WRITES, FrameKind.HELLO, 255])])
                + dice.randbytes(70_000)
            )
            sound = bytes_of(dice.sample(FENCES, 1)) if dice.random() < 0.5 else b""
            async with asyncio.timeout(20):
                await asyncio.gather(*(say(ground.member.stream, HELLO + sound + lie, dice, 10) for _ in range(BESIDE)))


async def test_whole_frames_that_make_no_sense_are_answered_or_refused(ground: Ground, rounds: Rounds) -> None:
    """With a right checksum. No response blames the node, and its log has no error."""
    async with watched(ground.member, ground.member, unchanged=False):
        for dice in rounds:
            await asyncio.gather(*(converse(ground.member.stream, frames_of(dice), dice) for _ in range(BESIDE)))


def frames_of(dice: Random) -> bytes:
    made = b""
    for _ in range(dice.choice([1, 2, 4])):
        kind, body = dice.choice(dice.choice([READS, WRITES, FENCES]))
        if dice.random() < 0.9:
            body = changed(body, dice)
        if dice.random() < 0.05:
            kind, body = dice.choice([*range(24), 255]), anything(dice)
        with contextlib.suppress(ValueError, OverflowError):
            made += encode(kind, harmless(kind, body))
    return made


def harmless(kind: int, body: Any) -> Any:
    """Without the few requests by which an administrator stops the only member."""
    if kind == FrameKind.WRITES and isinstance(body, list):
        wide = (b"\x93\x03", b"\x95\x03")
        return [b"" if isinstance(each, bytes) and each.startswith(wide) else each for each in body]
    return body


async def converse(address: str, frames: bytes, dice: Random) -> None:
    heard = await say(address, HELLO + frames, dice, 0.05)
    for kind, body in whole_frames(heard):
        if kind == FrameKind.FAILURES:
            codes = [each[0] for each in body[1::2]]
            assert "internal" not in codes, (body, frames)
            assert all(len(each[1]) < 2000 for each in body[1::2]), body
        if kind == FrameKind.REFUSED:
            assert 5 < len(body["reason"]) < 1000, body


def whole_frames(heard: bytes) -> list[tuple[int, Any]]:
    return FrameParser().feed(heard)


async def test_numbers_at_the_limits_of_their_range(ground: Ground) -> None:
    async with watched(ground.member, ground.member):
        for number in INTERESTING:
            for kind, body in frames_with(number):
                await converse(ground.member.stream, encode(kind, body), Random(number))


def frames_with(number: int) -> list[tuple[int, Any]]:
    return [
        (FrameKind.READS, [number, list(operation_fields(Range(KEY)))]),
        (FrameKind.MORE, [number, number]),
        (FrameKind.UNWATCH, [number]),
        (FrameKind.CALL, [number, "ping", []]),
        (FrameKind.CALL, [1, "lease_info", [number]]),
        (FrameKind.CALL, [1, "procedures", [False, number]]),
        (FrameKind.CALL, [1, "procedure", ["x", number]]),
        (FrameKind.WATCH, [number, KEY, b"", number, False, [number], number, number]),
        (FrameKind.HELLO, {"protocol": number}),
        (FrameKind.FENCE, [wire.JOIN, number, number]),
        (FrameKind.FENCE, [wire.STAGED, number]),
        (FrameKind.FENCE, [wire.RENEW, number, number, HolderPhase.ACTIVE.value, True, number, number]),
    ]
