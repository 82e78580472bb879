"""TTL rules: how long the data below a path is kept. Pure.

The rule of the longest path that is the object's own or above it counts; without one data is kept for ever. Whoever
deletes by a rule reads it through the fence, in a region whose safe default is "infinite" (seed 000): so no data is
lost to a rule that a node should have forgotten. A rule that can't be read counts as infinite, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from palisade.catalog import keys
from palisade.catalog.errors import DamagedRow
from palisade.catalog.row_format import a_count, a_path, from_bytes, to_bytes
from palisade.vault.regions import INFINITE_TTL

INFINITE = None
SAFE_DEFAULT = INFINITE_TTL
"""What the region answers for every key while no rule can be trusted."""


@dataclass(frozen=True, slots=True)
class TtlRule:
    path: str
    ttl_ms: int

    @property
    def key(self) -> bytes:
        return keys.at(keys.TTL, self.path)

    def to_bytes(self) -> bytes:
        return to_bytes({"path": self.path, "ttl_ms": self.ttl_ms})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> TtlRule:
        """Raises DamagedRow."""
        return from_bytes(
            key, packed, lambda value: TtlRule(a_path()(value["path"], "path"), a_count(value["ttl_ms"], "ttl_ms"))
        )


def places_of(path: str) -> list[bytes]:
    """The keys at which the rule of a path may be, the one that counts first."""
    return [keys.at(keys.TTL, place) for place in reversed([*keys.ancestors(path), path])]


def ttl_of(path: str, read: Callable[[bytes], bytes | None]) -> int | None:
    """Milliseconds, or INFINITE. `read`: the row of a key, None or SAFE_DEFAULT where there is none.

    One row that can't be read makes it infinite: a longer rule may have been meant to keep the data.
    """
    for key in places_of(path):
        packed = read(key)
        if packed == SAFE_DEFAULT:
            return INFINITE
        if packed is not None:
            try:
                return TtlRule.from_bytes(key, packed).ttl_ms
            except DamagedRow:
                return INFINITE
    return INFINITE


def has_expired(written_ms: int, ttl_ms: int | None, now_ms: int) -> bool:
    return ttl_ms is not None and now_ms - written_ms > ttl_ms
