"""The rights that operations of the catalog need: CATALOG on every row that they write and on the objects that they
name; and the right to read objects: READ on their rows. Pure.

The data of a table or device need no right of their own: CATALOG on the row that describes them includes their removal.
A property test compares the rights with the rows that plans write
(`tests/service/authorization/test_operation_rights.py`).

Below the permission keys this means ADMIN (`catalog.permissions.is_for_admins`). An operation that is not listed here
needs ADMIN on everything, and a test fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palisade.catalog import keys
from palisade.catalog.collections import collection_named
from palisade.catalog.permissions import Privilege
from palisade.metastore.requests import prefix_end
from palisade.service.authorization.needs import EVERYTHING, Need, Needs, reading

TABLE, DEVICE = ((keys.TABLES, "table"),), ((keys.DEVICES, "device"),)
USER = ((keys.USERS, "user"), (keys.CREDENTIALS, "user"))
PLACES: dict[str, tuple[tuple[bytes, str], ...]] = {
    "create-database": ((keys.DATABASES, "database"),),
    "create-table": TABLE,
    "drop-table": TABLE,
    "rename-table": TABLE,
    "add-column": TABLE,
    "rename-column": TABLE,
    "alter-column-type": TABLE,
    "drop-column": TABLE,
    "set-table-properties": TABLE,
    "delete-devices": TABLE,
    "create-device": DEVICE,
    "add-series": DEVICE,
    "alter-series-type": DEVICE,
    "alter-encoding": DEVICE,
    "delete-series": DEVICE,
    "delete-device": DEVICE,
    "activate-template": DEVICE,
    "create-template": ((keys.TEMPLATES, "template"),),
    "drop-template": ((keys.TEMPLATES, "template"),),
    "set-template": ((keys.TEMPLATES, "template"), (keys.TEMPLATE_PATHS, "path")),
    "unset-template": ((keys.TEMPLATES, "template"), (keys.TEMPLATE_PATHS, "path")),
    "create-view": ((keys.VIEWS, "view"),),
    "alter-view": ((keys.VIEWS, "view"),),
    "delete-view": ((keys.VIEWS, "view"),),
    "create-resource": ((keys.RESOURCES, "resource"),),
    "alter-resource": ((keys.RESOURCES, "resource"),),
    "drop-resource": ((keys.RESOURCES, "resource"),),
    "set-ttl": ((keys.TTL, "path"),),
    "unset-ttl": ((keys.TTL, "path"),),
    "create-user": USER,
    "set-password": USER,
    "drop-user": USER,
    "create-role": ((keys.ROLES, "role"),),
    "drop-role": ((keys.ROLES, "role"),),
    "grant-role": ((keys.ROLES, "role"), (keys.USERS, "user")),
    "revoke-role": ((keys.ROLES, "role"), (keys.USERS, "user")),
}


def needs_of_operation(kind: object, fields: object) -> Needs:
    """Malformed fields need everything: callers without ADMIN are refused, for others the operation itself reports the
    error."""
    if not isinstance(fields, Mapping) or not isinstance(kind, str):
        return (EVERYTHING,)
    if kind in ("grant", "revoke"):
        return (Need(Privilege.ADMIN, keys.PERMISSIONS, prefix_end(keys.PERMISSIONS)), _whole_grant(fields))
    if kind == "drop-database":
        return _database(fields.get("database"))
    if kind == "deactivate-template":
        return _devices(fields.get("path"))
    places = PLACES.get(kind)
    if places is None:
        return (EVERYTHING,)
    return (*(_at(place, fields.get(name)) for place, name in places), *_besides(kind, fields))


def _besides(kind: str, fields: Mapping[str, Any]) -> Needs:
    """For rows that no field names by itself."""
    if kind == "rename-table":
        return (_at(keys.TABLES, _beside(fields.get("table"), fields.get("to"))),)
    if kind == "drop-role":
        return (_below(keys.USERS),)
    return ()


def _beside(table: Any, name: Any) -> str | None:
    """The path of a table called `name` in the database of `table`."""
    return f"{keys.database_of(table)}.{name}" if type(table) is str and type(name) is str and name else None


def _below(prefix: bytes) -> Need:
    return Need(Privilege.CATALOG, prefix, prefix_end(prefix))


def _at(place: bytes, name: Any) -> Need:
    if type(name) is not str or not name:
        return EVERYTHING
    return Need(Privilege.CATALOG, keys.at(place, name.encode("utf-8", "replace").decode()))


def _devices(path: Any) -> Needs:
    """The device at the path and those below it. A database is no device."""
    own = _at(keys.DEVICES, path)
    if own == EVERYTHING:
        return (own,)
    below = _below(own.key + b"/")
    return (own, below) if "." in path else (below,)


def _database(name: Any) -> Needs:
    """It deletes everything in the database. A TTL rule or a template may be set at the database itself."""
    own = _at(keys.DATABASES, name)
    if own == EVERYTHING:
        return (own,)
    at_itself = (_at(place, name) for place in (keys.TTL, keys.TEMPLATE_PATHS))
    return (own, *at_itself, *(_below(_at(place, name).key + b"/") for place in keys.INSIDE))


def _whole_grant(fields: Mapping[str, Any]) -> Need:
    """Callers can grant only on prefixes on which they have ADMIN themselves."""
    prefix = fields.get("prefix")
    if type(prefix) is not str:
        return EVERYTHING
    start = prefix.encode("utf-8", "replace")
    return Need(Privilege.ADMIN, start or b"\0", prefix_end(start)) if start else EVERYTHING


def needs_of_object(collection: object, name: object) -> Needs:
    """Raises NotThere for an unknown collection."""
    place = collection_named(collection).place
    return (reading(keys.at(place, name)),) if type(name) is str else (EVERYTHING,)


def needs_of_objects(collection: object, below: object) -> Needs:
    """Raises NotThere for an unknown collection."""
    place = collection_named(collection).place
    if type(below) is not str:
        return (EVERYTHING,)
    if not below:
        return (reading(place, prefix_end(place)),)
    return reading(keys.at(place, below)), reading(keys.below(place, below), prefix_end(keys.below(place, below)))
