"""The definition of an operation: its fields, its locks, and the function that makes its plan. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from palisade.catalog import keys
from palisade.catalog.database import Database
from palisade.catalog.errors import BadField, NotThere
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import Read, shown

Request = Mapping[str, Any]
FIELDS_BYTES_HINT = "see docs/catalog.md"


@dataclass(frozen=True, slots=True)
class Field:
    """`shape`: its form on the command line: "text", "number", "flag", "many" (repeated), "columns", "series",
    "properties". `default`: None if a missing field is omitted."""

    name: str
    read: Read
    help: str
    shape: str = "text"
    required: bool = True
    default: Any = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The random values of this procedure, drawn once before it was recorded: the ID of the object that it creates."""

    procedure: str
    object_id: str


@dataclass(frozen=True, slots=True)
class OperationKind:
    """`locks`: the objects that no other procedure may change meanwhile, see `palisade/catalog/locks.py`.

    `keeps`: the change is effective once written and is never rolled back (F8): permissions.
    `secret`: the field with a password, which is hashed before the request is recorded.
    """

    name: str
    help: str
    fields: tuple[Field, ...]
    locks: Callable[[Request], tuple[str, ...]]
    plan: Callable[[Request, CatalogRows, Drawn], CatalogPlan]
    keeps: bool = False
    secret: str = ""

    def checked(self, given: Any) -> dict[str, Any]:
        """The validated fields, as they are recorded. Raises BadField."""
        if type(given) is not dict:
            raise BadField(f"{self.name}: {shown(given)} is not an object of fields")
        known = {field.name for field in self.fields}
        for name in given:
            if name not in known:
                raise BadField(
                    f"{self.name} has no field {shown(name)}; it has {', '.join(f.name for f in self.fields)}"
                )
        found: dict[str, Any] = {}
        for field in self.fields:
            value = given.get(field.name, field.default)
            if value is not None:
                found[field.name] = field.read(value, field.name)
            elif field.required:
                raise BadField(f"{field.name}: is missing; {field.help}")
        return found


def database_at(rows: CatalogRows, path: str) -> Database:
    """The database of a path. Raises NotThere if there is none, or it is being dropped."""
    name = keys.database_of(path)
    found = rows.read(keys.at(keys.DATABASES, name), Database.from_bytes)
    if found is None:
        raise NotThere(f"there is no database {name}; see the list of databases")
    if found.dropping:
        raise NotThere(f"database {name} is being dropped by procedure {found.dropping}")
    return found


def path_lock(path: str) -> str:
    """The lock of an object at a path. It includes everything below the path."""
    return "paths/" + path.replace(".", "/") + "/"
