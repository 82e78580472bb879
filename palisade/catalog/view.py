"""A logical view: a path that is an alias of a time series at another path. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from palisade.catalog import keys
from palisade.catalog.row_format import a_path, from_bytes, to_bytes


@dataclass(frozen=True, slots=True)
class CatalogView:
    """`source`: the path of a device and the name of a series of it, joined by a dot."""

    path: str
    source: str

    @property
    def key(self) -> bytes:
        return keys.at(keys.VIEWS, self.path)

    def to_bytes(self) -> bytes:
        return to_bytes({"path": self.path, "source": self.source})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> CatalogView:
        """Raises DamagedRow."""
        return from_bytes(
            key,
            packed,
            lambda value: CatalogView(a_path(2)(value["path"], "path"), a_path(3)(value["source"], "source")),
        )
