"""The changes of a catalog operation, computed from rows that were read. Pure.

A plan requests rows as it needs them: `CatalogRows` raises `NeedsRow` or `NeedsRange` for a row that was not read yet;
the engine reads it and plans again from the start. Thus the plan depends exactly on the rows it has requested. The
transaction that begins the change compares them, so a plan made from outdated rows is never executed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from palisade.metastore.results import KeyValue

T = TypeVar("T")
READ_MAX = 20_000
"""Most rows that a plan may read below one prefix."""


class NeedsRow(Exception):
    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key


class NeedsRange(Exception):
    def __init__(self, prefix: bytes) -> None:
        super().__init__(prefix)
        self.prefix = prefix


@dataclass(slots=True)
class CatalogRows:
    """The rows read. The transaction compares that single rows are unchanged. Ranges are guarded by the procedure's
    locks, so a plan reads ranges only below its locks, or to find the single rows on which it relies."""

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
class CatalogPlan:
    """`prepare` is written in one transaction and released to all nodes. After PROCEED everything below the prefixes of
    `destroy` is removed permanently, and `finish` is written in the transaction that ends the procedure.

    `made`: the prefixes for data of a new object. If there is data already, the object is in use and the plan is not
    rolled back, which would leave orphaned data."""

    prepare: Changes
    destroy: tuple[str, ...] = ()
    finish: Changes = field(default_factory=dict)
    made: tuple[str, ...] = ()
