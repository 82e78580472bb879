"""The collections that can be listed and read: the place of their rows, how a row is parsed, and the operations that
create and remove it. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from palisade.catalog import keys
from palisade.catalog.database import Database
from palisade.catalog.device import Device
from palisade.catalog.errors import DamagedRow, NotThere
from palisade.catalog.permissions import Subject
from palisade.catalog.resource import Resource
from palisade.catalog.table import CatalogTable
from palisade.catalog.template import Template, TemplatePath
from palisade.catalog.ttl import TtlRule
from palisade.catalog.view import CatalogView
from palisade.metastore.results import KeyValue


@dataclass(frozen=True, slots=True)
class Collection:
    """`field`: which field of its operations names the object. `inside`: its objects are in a database."""

    name: str
    place: bytes
    read: Callable[[bytes, bytes], Any]
    field: str
    create: str = ""
    drop: str = ""
    inside: bool = True

    def shape(self, row: KeyValue) -> dict[str, Any]:
        """A row as it is shown. Raises DamagedRow."""
        self.read(row.key, row.value)
        found: dict[str, Any] = json.loads(row.value)
        return found | {"name": keys.path_of(self.place, row.key), "mod_revision": row.mod_revision}

    def shape_or_damage(self, row: KeyValue) -> dict[str, Any]:
        try:
            return self.shape(row)
        except DamagedRow as error:
            name = keys.path_of(self.place, row.key)
            return {"name": name, "mod_revision": row.mod_revision, "damaged": str(error)}


COLLECTIONS = {
    each.name: each
    for each in (
        Collection(
            "databases", keys.DATABASES, Database.from_bytes, "database", "create-database", "drop-database", False
        ),
        Collection("tables", keys.TABLES, CatalogTable.from_bytes, "table", "create-table", "drop-table"),
        Collection("devices", keys.DEVICES, Device.from_bytes, "device", "create-device", "delete-device"),
        Collection(
            "templates", keys.TEMPLATES, Template.from_bytes, "template", "create-template", "drop-template", False
        ),
        Collection("template-paths", keys.TEMPLATE_PATHS, TemplatePath.from_bytes, "path"),
        Collection("views", keys.VIEWS, CatalogView.from_bytes, "view", "create-view", "delete-view"),
        Collection(
            "resources", keys.RESOURCES, Resource.from_bytes, "resource", "create-resource", "drop-resource", False
        ),
        Collection("ttl", keys.TTL, TtlRule.from_bytes, "path", "set-ttl", "unset-ttl"),
        Collection("users", keys.USERS, Subject.from_bytes, "user", "create-user", "drop-user", False),
        Collection("roles", keys.ROLES, Subject.from_bytes, "role", "create-role", "drop-role", False),
    )
}


def collection_named(name: object) -> Collection:
    """Raises NotThere."""
    found = COLLECTIONS.get(name) if isinstance(name, str) else None
    if found is None:
        raise NotThere(f"there is no collection {name!r:.60}; there are {', '.join(COLLECTIONS)}")
    return found


def is_hidden(shape: dict[str, Any], gone: frozenset[str], collection: Collection) -> bool:
    """Being dropped, or in a database that is: absent for readers. `gone`: these databases."""
    if shape.get("dropping"):
        return True
    return collection.inside and keys.database_of(shape["name"]) in gone


def dropped_databases(rows: Iterable[KeyValue]) -> frozenset[str]:
    """Those that are being dropped. An unreadable one is not among them: it is shown as damaged, with its content."""
    found = set()
    for row in rows:
        try:
            database = Database.from_bytes(row.key, row.value)
        except DamagedRow:
            continue
        if database.dropping:
            found.add(database.name)
    return frozenset(found)
