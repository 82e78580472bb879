"""A reader of a vault, taken step by step: between two steps of a read, a simulation lets anything else happen."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from palisade.vault.reader import VaultReader
from palisade.vault.vault import Vault


class Step(enum.Enum):
    """Of a read: what it does next."""

    PAGE = "page"
    SNAPSHOT = "snapshot"
    LOOK = "look"
    """It has its snapshot, and reads from it."""
    CLOCK = "clock"


class _Words:
    """The words of the fence page; each read of it is a step."""

    def __init__(self, take: Callable[[Step], None], words: memoryview) -> None:
        self._take, self._words = take, words

    def __getitem__(self, index: int) -> int:
        self._take(Step.PAGE)
        return self._words[index]


def stepped_reader(
    vault: Vault,
    take: Callable[[Step], None],
    *,
    clock_ns: Callable[[], int],
    sleep: Callable[[float], None],
    wait_s: float,
) -> VaultReader:
    """`take` is called before each step."""

    def clock() -> int:
        take(Step.CLOCK)
        return clock_ns()

    reader = VaultReader.over(vault, clock_ns=clock, sleep=sleep, wait_s=wait_s)
    source: Any = reader._source
    begin = source.begin

    def stepped() -> Any:
        take(Step.SNAPSHOT)
        snapshot = begin()
        take(Step.LOOK)
        return snapshot

    source.begin, source.words = stepped, _Words(take, source.words)
    reader._trust(reader._fence, source)
    return reader
