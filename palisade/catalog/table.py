"""A table: its columns, properties, and the prefix of its rows. Pure.

Column IDs are never reused within a table. Rows refer to columns by ID, so a renamed column keeps its values, and a new
column with the name of a dropped one does not inherit values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from palisade.catalog import keys
from palisade.catalog.database import Database, marked
from palisade.catalog.errors import AlreadyThere, BadField, NotAllowed, NotThere
from palisade.catalog.row_format import (
    Read,
    a_choice,
    a_count,
    a_name,
    from_bytes,
    list_of,
    names_once,
    object_of,
    properties,
    text_up_to,
    to_bytes,
)
from palisade.catalog.types import TYPES, check_widening

CATEGORIES = ("tag", "attribute", "field")
COLUMNS_MAX = 500
DELETING_MAX = 500
COLUMN: Mapping[str, Read] = {"name": a_name, "type": a_choice(TYPES), "category": a_choice(CATEGORIES)}
a_column = object_of(COLUMN, {"category": "field"})
columns = names_once(list_of(a_column, COLUMNS_MAX))
devices = names_once(list_of(a_name, DELETING_MAX))
stored_column = object_of({"id": a_count, **COLUMN}, {})


@dataclass(frozen=True, slots=True)
class Column:
    id: int
    name: str
    type: str
    category: str


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """`data`: the prefix of its rows, `<data><device>/...`. `deleting`: devices whose rows are being removed and must
    not be read or written. `dropping`: the procedure that removes the whole table."""

    database: str
    name: str
    id: str
    data: str
    columns: tuple[Column, ...]
    next_column: int
    properties: Mapping[str, str]
    deleting: tuple[str, ...] = ()
    dropping: str = ""

    @staticmethod
    def of(
        path: str, id_: str, database: Database, specs: list[dict[str, str]], given: Mapping[str, Any]
    ) -> CatalogTable:
        found = tuple(Column(number, **spec) for number, spec in enumerate(specs, 1))
        kept = {name: text for name, text in given.items() if text is not None}
        check_columns(path, found)
        return CatalogTable(
            keys.database_of(path), path.partition(".")[2], id_, f"{database.data}{id_}/", found, len(found) + 1, kept
        )

    @property
    def path(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def key(self) -> bytes:
        return keys.at(keys.TABLES, self.path)

    def column(self, name: str) -> Column:
        """Raises NotThere."""
        for each in self.columns:
            if each.name == name:
                return each
        raise NotThere(f"column: {self.path} has no column {name}; it has {', '.join(c.name for c in self.columns)}")

    def with_column(self, spec: Mapping[str, str]) -> CatalogTable:
        if any(each.name == spec["name"] for each in self.columns):
            raise AlreadyThere(f"column: {self.path} already has a column {spec['name']}")
        if len(self.columns) >= COLUMNS_MAX:
            raise BadField(f"column: {self.path} has {COLUMNS_MAX} columns, which is the limit")
        added = Column(self.next_column, **spec)
        return replace(self, columns=(*self.columns, added), next_column=self.next_column + 1)

    def renamed_column(self, name: str, to: str) -> CatalogTable:
        if any(each.name == to for each in self.columns):
            raise AlreadyThere(f"to: {self.path} already has a column {to}")
        return self._changed(replace(self.column(name), name=to))

    def retyped_column(self, name: str, to: str) -> CatalogTable:
        found = self.column(name)
        if found.category != "field":
            raise NotAllowed(f"column: {name} is a {found.category} of {self.path}: its type is fixed")
        check_widening(found.type, to, "type")
        return self._changed(replace(found, type=to))

    def without_column(self, name: str) -> CatalogTable:
        found = self.column(name)
        if found.category == "tag":
            raise NotAllowed(f"column: {name} is a tag of {self.path}; tags identify its devices and cannot be dropped")
        if len(self.columns) == 1:
            raise NotAllowed(f"column: {name} is the last column of {self.path}: drop the table instead")
        return replace(self, columns=tuple(each for each in self.columns if each is not found))

    def with_properties(self, given: Mapping[str, str | None]) -> CatalogTable:
        merged = {**self.properties, **given}
        properties(merged, "properties")
        return replace(self, properties={name: text for name, text in merged.items() if text is not None})

    def _changed(self, column: Column) -> CatalogTable:
        return replace(self, columns=tuple(column if each.id == column.id else each for each in self.columns))

    def to_bytes(self) -> bytes:
        fixed = {
            "database": self.database,
            "name": self.name,
            "id": self.id,
            "data": self.data,
            "columns": [{"id": c.id, "name": c.name, "type": c.type, "category": c.category} for c in self.columns],
            "next_column": self.next_column,
            "properties": dict(self.properties),
        }
        return to_bytes(fixed | marked(deleting=list(self.deleting), dropping=self.dropping))

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> CatalogTable:
        """Raises DamagedRow."""

        def read(value: Any) -> CatalogTable:
            found = names_once(list_of(stored_column, COLUMNS_MAX))(value["columns"], "columns")
            return CatalogTable(
                a_name(value["database"], "database"),
                a_name(value["name"], "name"),
                a_name(value["id"], "id"),
                data_prefix(value["data"], "data"),
                tuple(Column(**each) for each in found),
                a_count(value["next_column"], "next_column"),
                properties(value["properties"], "properties"),  # type: ignore[arg-type]
                tuple(list_of(a_name, DELETING_MAX, 0)(value.get("deleting", []), "deleting")),
                text_up_to(64)(value.get("dropping", ""), "dropping"),
            )

        return from_bytes(key, packed, read)


def check_columns(path: str, columns: tuple[Column, ...]) -> None:
    """Raises BadField."""
    for each in columns:
        if each.category != "field" and each.type not in ("text", "string"):
            raise BadField(f"columns: {each.name} of {path} is a {each.category}, so its type is text or string")


def data_prefix(value: Any, field: str) -> str:
    """A prefix below `palisade.data/` with two IDs, so that only data can be removed. Raises BadField."""
    parts = value.removeprefix(keys.DATA).split("/") if type(value) is str and value.startswith(keys.DATA) else []
    if len(parts) != 3 or parts[2]:
        raise BadField(f"{field}: is not below {keys.DATA}<database>/<object>/")
    a_name(parts[0], field)
    a_name(parts[1], field)
    return str(value)
