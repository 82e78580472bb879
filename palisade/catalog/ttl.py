"""TTL rules: how long the data below a path is kept. Pure.

The rule at the longest path that equals or contains the object's path applies; without one the data is kept forever.
Code that deletes by a rule reads it through the fence, in a region whose safe default is "infinite" (seed 000), so an
outdated rule never deletes data. An unreadable rule also counts as infinite.
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
"""The region's answer for every key while the vault must not be trusted."""


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
    """The keys that can hold the rule of a path, in order of precedence."""
    return [keys.at(keys.TTL, place) for place in reversed([*keys.ancestors(path), path])]


def ttl_of(path: str, read: Callable[[bytes], bytes | None]) -> int | None:
    """Milliseconds, or INFINITE. `read`: returns the row of a key; None or SAFE_DEFAULT if there is none.

    An unreadable row makes it infinite, because that rule may have been longer.
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
