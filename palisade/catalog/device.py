"""The schema of a device: its time series, each with type, encoding and compression, and its template. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from palisade.catalog import keys
from palisade.catalog.database import Database, marked
from palisade.catalog.errors import AlreadyThere, BadField, NotThere
from palisade.catalog.row_format import (
    Read,
    a_choice,
    a_flag,
    a_name,
    a_path,
    from_bytes,
    list_of,
    names_once,
    object_of,
    text_up_to,
    to_bytes,
)
from palisade.catalog.table import data_prefix
from palisade.catalog.types import COMPRESSIONS, ENCODINGS, TYPES, check_encoding, check_widening

SERIES_MAX = 500
SERIES: Mapping[str, Read] = {
    "name": a_name,
    "type": a_choice(TYPES),
    "encoding": a_choice(ENCODINGS),
    "compression": a_choice(COMPRESSIONS),
}
one_series = object_of(SERIES, {"encoding": "plain", "compression": "lz4"})
series_names = names_once(list_of(a_name, SERIES_MAX))


def checked_series(value: Any, field: str) -> dict[str, str]:
    found: dict[str, str] = one_series(value, field)
    check_encoding(found["type"], found["encoding"], f"{field}.encoding")
    return found


series_list = names_once(list_of(checked_series, SERIES_MAX))


@dataclass(frozen=True, slots=True)
class Series:
    name: str
    type: str
    encoding: str
    compression: str

    def as_dict(self) -> dict[str, str]:
        return {"name": self.name, "type": self.type, "encoding": self.encoding, "compression": self.compression}


def many(specs: Iterable[Mapping[str, str]]) -> tuple[Series, ...]:
    return tuple(Series(**spec) for spec in specs)


@dataclass(frozen=True, slots=True)
class Device:
    """`data`: the prefix of its values, `<data><series>/...`. `series`: its own ones, in addition to its `template`'s.

    `deleting`: series whose values are being removed and must not be read or written. `dropping`: as in a table.
    """

    path: str
    id: str
    data: str
    aligned: bool
    series: tuple[Series, ...]
    template: str = ""
    deleting: tuple[str, ...] = ()
    dropping: str = ""

    @staticmethod
    def of(path: str, id_: str, database: Database, *, aligned: bool = False) -> Device:
        return Device(path, id_, f"{database.data}{id_}/", aligned, ())

    @property
    def key(self) -> bytes:
        return keys.at(keys.DEVICES, self.path)

    def one(self, name: str) -> Series:
        """Raises NotThere."""
        for each in self.series:
            if each.name == name and name not in self.deleting:
                return each
        raise NotThere(f"series: {self.path} has no time series {name} of its own")

    def with_series(self, added: Iterable[Series]) -> Device:
        given = tuple(added)
        taken = {each.name for each in self.series} | set(self.deleting)
        for each in given:
            if each.name in taken:
                raise AlreadyThere(f"series: {self.path} already has a time series {each.name}")
        if len(self.series) + len(given) > SERIES_MAX:
            raise BadField(f"series: {self.path} would have more than {SERIES_MAX} time series")
        return replace(self, series=self.series + given)

    def retyped(self, name: str, to: str) -> Device:
        found = self.one(name)
        check_widening(found.type, to, "type")
        check_encoding(to, found.encoding, "type: its encoding does not fit; alter the encoding first")
        return self._changed(replace(found, type=to))

    def encoded(self, name: str, encoding: str | None, compression: str | None) -> Device:
        found = self.one(name)
        if encoding is None and compression is None:
            raise BadField("encoding: give encoding, compression, or both")
        changed = replace(found, encoding=encoding or found.encoding, compression=compression or found.compression)
        check_encoding(changed.type, changed.encoding, "encoding")
        return self._changed(changed)

    def without_series(self, names: Iterable[str]) -> Device:
        gone = set(names)
        return replace(self, series=tuple(each for each in self.series if each.name not in gone))

    def _changed(self, series: Series) -> Device:
        return replace(self, series=tuple(series if each.name == series.name else each for each in self.series))

    def to_bytes(self) -> bytes:
        fixed = {
            "path": self.path,
            "id": self.id,
            "data": self.data,
            "aligned": self.aligned,
            "series": [each.as_dict() for each in self.series],
        }
        return to_bytes(fixed | marked(template=self.template, deleting=list(self.deleting), dropping=self.dropping))

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> Device:
        """Raises DamagedRow."""

        def read(value: Any) -> Device:
            return Device(
                a_path(2)(value["path"], "path"),
                a_name(value["id"], "id"),
                data_prefix(value["data"], "data"),
                a_flag(value["aligned"], "aligned"),
                many(names_once(list_of(checked_series, SERIES_MAX, 0))(value["series"], "series")),
                text_up_to(64)(value.get("template", ""), "template"),
                tuple(list_of(a_name, 2 * SERIES_MAX, 0)(value.get("deleting", []), "deleting")),
                text_up_to(64)(value.get("dropping", ""), "dropping"),
            )

        return from_bytes(key, packed, read)
