"""What an operation of the catalog would change, decided from rows that were read. Pure.

A plan asks for rows as it needs them: `Rows` raises `NeedsRow` or `NeedsRange` for one that was not read yet, who plans
reads it and plans again from the start. So what a plan rests on is exactly what it has asked for, and the transaction
that begins the change compares it: a plan made from rows that are no more is never carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from palisade.metastore.results import KeyValue

T = TypeVar("T")
READ_MAX = 20_000
"""How many rows a plan may read below one prefix."""


class NeedsRow(Exception):
    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key


class NeedsRange(Exception):
    def __init__(self, prefix: bytes) -> None:
        super().__init__(prefix)
        self.prefix = prefix


@dataclass(slots=True)
class Rows:
    """What was read. Of single rows the transaction compares that they are as they were. Ranges are guarded by the
    locks of the procedure, so a plan reads a range only below what it locks."""

    found: dict[bytes, KeyValue | None] = field(default_factory=dict)
    ranges: dict[bytes, tuple[KeyValue, ...]] = field(default_factory=dict)

    def get(self, key: bytes) -> bytes | None:
        if key not in self.found:
            raise NeedsRow(key)
        row = self.found[key]
        return row.value if row is not None else None

    def read(self, key: bytes, read: Callable[[bytes, bytes], T]) -> T | None:
        """Raises DamagedRow."""
        packed = self.get(key)
        return read(key, packed) if packed is not None else None

    def below(self, prefix: bytes) -> tuple[KeyValue, ...]:
        if prefix not in self.ranges:
            raise NeedsRange(prefix)
        return self.ranges[prefix]


Changes = Mapping[bytes, bytes | None]
"""Key -> new value; None: deleted."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`prepare` is written in one transaction and released to all nodes. After PROCEED everything below the prefixes of
    `destroy` is removed for ever, and `finish` is written in the transaction that ends the procedure.

    `made`: where the data of a new object will be. While there is some, somebody uses the object already, and the plan
    is not taken back: that would leave data behind that belongs to nothing."""

    prepare: Changes
    destroy: tuple[str, ...] = ()
    finish: Changes = field(default_factory=dict)
    made: tuple[str, ...] = ()
