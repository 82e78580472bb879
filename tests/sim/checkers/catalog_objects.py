"""An object of the catalog exists when the procedure that creates it is DONE, and not after the one that drops it.

At the end exactly the objects exist that DONE procedures have created and not dropped. The effects of procedures are
defined here a second time, so that they are not judged by the plans that executed them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palisade.catalog import keys
from palisade.catalog.procedure_record import from_bytes
from palisade.catalog.procedures import Procedure, ProcedureState
from palisade.metastore.results import RevisionEvents
from tests.sim.backups import Base
from tests.sim.world import Checker, World

MADE_BY = {
    "create-database": (keys.DATABASES, "database"), "create-table": (keys.TABLES, "table"),
    "create-device": (keys.DEVICES, "device"), "activate-template": (keys.DEVICES, "device"),
    "create-template": (keys.TEMPLATES, "template"), "set-template": (keys.TEMPLATE_PATHS, "path"),
    "create-view": (keys.VIEWS, "view"), "set-ttl": (keys.TTL, "path"), "create-user": (keys.USERS, "user"),
    "create-role": (keys.ROLES, "role"), "create-resource": (keys.RESOURCES, "resource"),
}  # fmt: skip
DROPPED_BY = {
    "drop-database": (keys.DATABASES, "database"), "drop-table": (keys.TABLES, "table"),
    "delete-device": (keys.DEVICES, "device"), "drop-template": (keys.TEMPLATES, "template"),
    "unset-template": (keys.TEMPLATE_PATHS, "path"), "delete-view": (keys.VIEWS, "view"),
    "unset-ttl": (keys.TTL, "path"), "drop-user": (keys.USERS, "user"), "drop-role": (keys.ROLES, "role"),
    "drop-resource": (keys.RESOURCES, "resource"),
}  # fmt: skip
CHANGES = {
    "add-column", "alter-column-type", "drop-column", "rename-column", "rename-table", "set-table-properties",
    "delete-devices", "add-series", "alter-encoding", "alter-series-type", "delete-series", "deactivate-template",
    "alter-view", "alter-resource", "grant", "grant-role", "revoke", "revoke-role", "set-password",
}  # fmt: skip
"""They make and drop no object; `rename-table` does both."""
PLACES = tuple(sorted({place for place, _ in MADE_BY.values()}))
MAY_EMPTY = ("delete-series", "deactivate-template")
"""A device without other content is removed with its last series."""


class CatalogObjects(Checker):
    name = "catalog objects"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._there: set[bytes] = set()
        """Committed rows, by key."""
        self._left: set[bytes] = set()
        """The remaining effects of DONE procedures."""
        self._ended: set[str] = set()

    def committed(self, events: RevisionEvents) -> None:
        for done in self._take(events):
            for key in made_by(done):
                if key not in self._there:
                    self.fail(f"{done.id} ({done.kind}) is done at {events.revision}, and there is no {key!r}")
            for key in sorted(self._there):
                if is_dropped_by(done, key):
                    self.fail(f"{done.id} ({done.kind}) is done at {events.revision}, and there is {key!r}")

    def restored(self, base: Base) -> None:
        for events in base.past:
            self._take(events)

    def _take(self, events: RevisionEvents) -> list[Procedure]:
        """Those that are DONE from now on."""
        done = []
        for event in events.events:
            key = event.kv.key
            if key.startswith(PLACES):
                (self._there.discard if event.delete else self._there.add)(key)
            elif key.startswith(keys.PROCEDURES) and not event.delete:
                record = from_bytes(key, event.kv.value, events.revision)
                if record.state is ProcedureState.DONE and record.id not in self._ended:
                    self._ended.add(record.id)
                    done.append(record)
        for each in done:
            self._left = {key for key in self._left if not is_dropped_by(each, key)} | made_by(each)
            if each.kind in MAY_EMPTY:
                self._left -= {key for key in self._left - self._there if key.startswith(keys.DEVICES)}
        return done

    def settled(self) -> None:
        for key in sorted(self._left ^ self._there):
            where = "there, and no procedure has made it" if key in self._there else "gone, and none has dropped it"
            self.fail(f"in the end {key!r} is {where}")


def made_by(done: Procedure) -> set[bytes]:
    given = done.request
    if done.kind == "rename-table":
        return {keys.at(keys.TABLES, f"{keys.database_of(given['table'])}.{given['to']}")}
    return named(MADE_BY, done.kind, given)


def is_dropped_by(done: Procedure, key: bytes) -> bool:
    given = done.request
    if done.kind == "rename-table":
        return key == keys.at(keys.TABLES, given["table"])
    if done.kind == "drop-database":
        name: str = given["database"]
        inside = any(key == keys.at(place, name) or key.startswith(keys.below(place, name)) for place in keys.INSIDE)
        return inside or key == keys.at(keys.DATABASES, name)
    return key in named(DROPPED_BY, done.kind, given)


def named(table: Mapping[str, tuple[bytes, str]], kind: str, given: Mapping[str, Any]) -> set[bytes]:
    if kind not in table:
        return set()
    place, field = table[kind]
    return {keys.at(place, given[field])}
