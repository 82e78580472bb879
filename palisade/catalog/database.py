"""A database, which contains tables, devices, views and TTL rules. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from palisade.catalog import keys
from palisade.catalog.row_format import a_name, from_bytes, properties, text_up_to, to_bytes


@dataclass(frozen=True, slots=True)
class Database:
    """`id` is never reused, so a new database with the same name has other data.

    `dropping`: the procedure that removes it. From then on the database and its content do not exist for readers: a
    reader of a table or device also reads its database.
    """

    name: str
    id: str
    properties: Mapping[str, str]
    dropping: str = ""

    @property
    def key(self) -> bytes:
        return keys.at(keys.DATABASES, self.name)

    @property
    def data(self) -> str:
        """The prefix of all its data."""
        return f"{keys.DATA}{self.id}/"

    def to_bytes(self) -> bytes:
        return to_bytes(
            {"name": self.name, "id": self.id, "properties": dict(self.properties)} | marked(dropping=self.dropping)
        )

    @staticmethod
    def from_bytes(key: bytes, packed: bytes) -> Database:
        """Raises DamagedRow."""

        def read(value: Any) -> Database:
            return Database(
                a_name(value["name"], "name"),
                a_name(value["id"], "id"),
                properties(value["properties"], "properties"),  # type: ignore[arg-type]
                text_up_to(64)(value.get("dropping", ""), "dropping"),
            )

        return from_bytes(key, packed, read)


def marked(**marks: Any) -> dict[str, Any]:
    """The marks that are set; others are omitted from the row."""
    return {name: mark for name, mark in marks.items() if mark}
