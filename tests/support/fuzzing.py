"""Shared by all fuzzers: rounds from a seed within a time, damaged bytes and values, and required properties.

Round r of a fuzzer has a random source of its own, derived from the seed, the name of the fuzzer and r. Thus a failed
round can be repeated alone: PALISADE_FUZZ_SEED and PALISADE_FUZZ_ROUND, which every failure prints.
PALISADE_FUZZ_SECONDS is the duration of each fuzzer; `scripts/fuzz` sets these.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

SEED = int(os.environ.get("PALISADE_FUZZ_SEED", "1"))
SECONDS = float(os.environ.get("PALISADE_FUZZ_SECONDS", "2"))
ONLY_ROUND = os.environ.get("PALISADE_FUZZ_ROUND")
INTERESTING = (
    0, 1, -1, 2, 7, 8, 31, 32, 64, 127, 128, 255, 256, 1023, 4095, 4096, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31,
    (1 << 32) - 1, 1 << 32, 1 << 53, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63), (1 << 64) - 1,
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e-320, 1e18, 1e308, math.inf, -math.inf, math.nan)
TEXTS = ("", "a", "n1", "\0", "\x7f", "é", "﷽", "../../etc", "x" * 300, "%s%n", "true", "-1", "1e999", "nan", "\u202e")
BYTES = (b"", b"\0", b"a", b"\xff", b"\xff\xff", b"/", b"palisade/", b"x" * 300, b"\xc1", b"k" * 4097)


class Rounds:
    """`for dice in rounds:` until the time is over, at least `least` times. `rounds.number` is the current one."""

    def __init__(self, name: str, seconds: float | None = None, least: int = 20) -> None:
        self.name = name
        self.number = 0
        self._seconds = SECONDS if seconds is None else seconds
        self._least = least

    def dice(self, number: int) -> Random:
        return Random(f"{SEED}/{self.name}/{number}")

    def __iter__(self) -> Iterator[Random]:
        if ONLY_ROUND is not None:
            self.number = int(ONLY_ROUND)
            yield self.dice(self.number)
            return
        end = time.monotonic() + self._seconds
        while self.number < self._least or time.monotonic() < end:
            self.number += 1
            yield self.dice(self.number)

    def __repr__(self) -> str:
        return f"PALISADE_FUZZ_SEED={SEED} PALISADE_FUZZ_ROUND={self.number} ({self.name})"


# Bytes.


def damaged(content: bytes, dice: Random, times: int | None = None) -> bytes:
    """Some of its bytes are changed, missing, or repeated."""
    data = bytearray(content)
    for _ in range(times if times is not None else dice.choice([1, 1, 1, 2, 3, 8])):
        dice.choice(DAMAGES)(data, dice)
    return bytes(data)


def _place(data: bytearray, dice: Random) -> int:
    """Anywhere; heads more often than the rest."""
    if not data:
        return 0
    return dice.randrange(min(len(data), 24)) if dice.random() < 0.3 else dice.randrange(len(data))


def _span(data: bytearray, dice: Random) -> slice:
    start = _place(data, dice)
    return slice(start, start + dice.choice([1, 2, 4, 9, 100, max(1, len(data) // 3)]))


def _flip(data: bytearray, dice: Random) -> None:
    if data:
        data[_place(data, dice)] ^= 1 << dice.randrange(8)


def _replace(data: bytearray, dice: Random) -> None:
    part = _span(data, dice)
    data[part] = dice.randbytes(len(data[part]))


def _remove(data: bytearray, dice: Random) -> None:
    del data[_span(data, dice)]


def _repeat(data: bytearray, dice: Random) -> None:
    part = _span(data, dice)
    data[part.start : part.start] = data[part]


def _insert(data: bytearray, dice: Random) -> None:
    place = _place(data, dice)
    data[place:place] = dice.choice([b"\r\n", b"\0", b"\xff" * 8, b": ", dice.randbytes(dice.randrange(40))])


def _truncate(data: bytearray, dice: Random) -> None:
    del data[_place(data, dice) :]


def _number(data: bytearray, dice: Random) -> None:
    """A length, perhaps a wrong one."""
    width, place = dice.choice([1, 2, 4, 8]), _place(data, dice)
    number = dice.choice(INTERESTING) % (1 << 8 * width)
    data[place : place + width] = number.to_bytes(width, dice.choice(["big", "little"]))


DAMAGES: tuple[Callable[[bytearray, Random], None], ...] = (
    _flip, _flip, _replace, _remove, _repeat, _insert, _truncate, _number, _number,
)  # fmt: skip


# Values of msgpack or JSON.


def anything(dice: Random, depth: int = 3, *, json: bool = False) -> Any:
    """Any value. `json`: without bytes, and with text as the keys of objects."""
    kind = dice.random()
    if depth and kind < 0.15:
        return [anything(dice, depth - 1, json=json) for _ in range(dice.choice([0, 1, 2, 2, 3, 40]))]
    if depth and kind < 0.25:
        return {dice.choice(TEXTS): anything(dice, depth - 1, json=json) for _ in range(dice.choice([0, 1, 1, 2, 3]))}
    if kind < 0.3:
        return nested(dice.choice([2, 70, 200]))
    leaves: list[Callable[[], Any]] = [
        lambda: None,
        lambda: dice.random() < 0.5,
        lambda: dice.choice(INTERESTING),
        lambda: dice.randrange(20),
        lambda: dice.choice(FLOATS),
        lambda: dice.choice(TEXTS),
    ]
    if not json:
        leaves += [lambda: dice.choice(BYTES), lambda: dice.randbytes(dice.randrange(12))]
    return dice.choice(leaves)()


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def changed(value: Any, dice: Random, *, json: bool = False) -> Any:
    """The value with one part of it changed at most, at any depth."""
    if isinstance(value, list | tuple) and value and dice.random() < 0.85:
        found = list(value)
        place = dice.randrange(len(found))
        how = dice.random()
        if how < 0.7:
            found[place] = changed(found[place], dice, json=json)
        elif how < 0.8:
            del found[place]
        elif how < 0.9:
            found.insert(place, found[place])
        else:
            found.insert(place, anything(dice, json=json))
        return found
    if isinstance(value, dict) and value and dice.random() < 0.85:
        name = dice.choice(list(value))
        if dice.random() < 0.2:
            return {each: inner for each, inner in value.items() if each != name}
        if dice.random() < 0.2:
            return value | {dice.choice(TEXTS): anything(dice, json=json)}
        return value | {name: changed(value[name], dice, json=json)}
    return _near(value, dice) if dice.random() < 0.4 else anything(dice, json=json)


def _near(value: Any, dice: Random) -> Any:
    """Of the same type, mostly."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return dice.choice([value + 1, value - 1, -value, value << 8, float(value), *INTERESTING])
    if isinstance(value, float):
        return dice.choice([*FLOATS, -value, value * 2])
    if isinstance(value, bytes):
        return damaged(value, dice)
    if isinstance(value, str):
        return dice.choice([value + "\0", value[1:], value * 40, value.upper(), *TEXTS])
    return value
