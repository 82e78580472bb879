"""A device template: time series that many devices share, and the paths at which it is set. Pure.

A template that is set at a path can be activated at every device there and below. The device then has its series.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palisade.catalog import keys
from palisade.catalog.device import SERIES_MAX, Series, checked_series, many
from palisade.catalog.row_format import a_name, a_path, from_bytes, list_of, names_once, to_bytes


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    series: tuple[Series, ...]

    @property
    def key(self) -> bytes:
        return keys.at(keys.TEMPLATES, self.name)

    def to_bytes(self) -> bytes:
        return to_bytes({"name": self.name, "series": [each.as_dict() for each in self.series]})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> Template:
        """Raises DamagedRow."""

        def read(value: Any) -> Template:
            found = names_once(list_of(checked_series, SERIES_MAX))(value["series"], "series")
            return Template(a_name(value["name"], "name"), many(found))

        return from_bytes(key, packed, read)


@dataclass(frozen=True, slots=True)
class TemplatePath:
    """`template` is set at `path`."""

    path: str
    template: str

    @property
    def key(self) -> bytes:
        return keys.at(keys.TEMPLATE_PATHS, self.path)

    def to_bytes(self) -> bytes:
        return to_bytes({"path": self.path, "template": self.template})

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> TemplatePath:
        """Raises DamagedRow."""
        return from_bytes(
            key,
            packed,
            lambda value: TemplatePath(a_path()(value["path"], "path"), a_name(value["template"], "template")),
        )
