"""Rights that catalog requests need. An operation needs CATALOG on the rows of the objects that it names, a read of
objects READ on their rows. Pure.

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
    "set-ttl": ((keys.TTL, "path"),),
    "unset-ttl": ((keys.TTL, "path"),),
    "create-user": ((keys.USERS, "user"),),
    "set-password": ((keys.USERS, "user"),),
    "drop-user": ((keys.USERS, "user"),),
    "create-role": ((keys.ROLES, "role"),),
    "drop-role": ((keys.ROLES, "role"),),
    "grant-role": ((keys.ROLES, "role"), (keys.USERS, "user")),
    "revoke-role": ((keys.ROLES, "role"), (keys.USERS, "user")),
}
IN_DATABASE = (keys.TABLES, keys.DEVICES, keys.VIEWS, keys.TTL, keys.TEMPLATE_PATHS)


def needs_of_operation(kind: object, fields: object) -> Needs:
    """Malformed fields need everything: callers without ADMIN are refused, for others the operation itself reports the
    error."""
    if not isinstance(fields, Mapping) or not isinstance(kind, str):
        return (EVERYTHING,)
    if kind in ("grant", "revoke"):
        return (Need(Privilege.ADMIN, keys.PERMISSIONS, prefix_end(keys.PERMISSIONS)), _whole_grant(fields))
    if kind == "drop-database":
        return _database(fields)
    if kind == "deactivate-template":
        return tuple(_at_and_below(keys.DEVICES, fields.get("path")))
    places = PLACES.get(kind)
    if places is None:
        return (EVERYTHING,)
    found = tuple(_at(place, fields.get(name)) for place, name in places)
    return found + ((_at(places[0][0], fields["to"]),) if kind == "rename-table" and "to" in fields else ())


def _at(place: bytes, name: Any) -> Need:
    if type(name) is not str or not name:
        return EVERYTHING
    return Need(Privilege.CATALOG, keys.at(place, name.encode("utf-8", "replace").decode()))


def _at_and_below(place: bytes, name: Any) -> tuple[Need, ...]:
    own = _at(place, name)
    if own == EVERYTHING:
        return (own,)
    return own, Need(Privilege.CATALOG, own.key + b"/", prefix_end(own.key + b"/"))


def _database(fields: Mapping[str, Any]) -> Needs:
    """It deletes everything in the database."""
    own = _at(keys.DATABASES, fields.get("database"))
    if own == EVERYTHING:
        return (own,)
    return (own, *(need for place in IN_DATABASE for need in _at_and_below(place, fields["database"])))


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
