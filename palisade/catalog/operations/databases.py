"""Operations on databases: create, and drop with all content. Pure."""

from __future__ import annotations

from dataclasses import replace

from palisade.catalog import keys
from palisade.catalog.database import Database
from palisade.catalog.errors import AlreadyThere
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request, database_at, path_lock
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import a_name, properties

DATABASE = Field("database", a_name, "its name")


def create(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    name = request["database"]
    if rows.get(keys.at(keys.DATABASES, name)) is not None:
        raise AlreadyThere(f"database {name} already exists")
    given = {key: text for key, text in request.get("properties", {}).items() if text is not None}
    made = Database(name, drawn.object_id, given)
    return CatalogPlan({made.key: made.to_bytes()})


def drop(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    """Hides the database and all its content first. Then everything is removed, the data first: a catalog row goes when
    the data that it describes are gone."""
    found = database_at(rows, request["database"])
    inside = [keys.below(place, found.name).decode() for place in keys.INSIDE]
    at_itself = {keys.at(place, found.name): None for place in (keys.TTL, keys.TEMPLATE_PATHS)}
    return CatalogPlan(
        {found.key: replace(found, dropping=drawn.procedure).to_bytes()},
        destroy=(found.data, *inside),
        finish={found.key: None, **at_itself},
    )


def locks(request: Request) -> tuple[str, ...]:
    return (path_lock(request["database"]),)


KINDS = (
    OperationKind(
        "create-database",
        "Create a database.",
        (DATABASE, Field("properties", properties, "a name and its text", "properties", required=False)),
        locks,
        create,
    ),
    OperationKind("drop-database", "Drop a database with everything in it, its data too.", (DATABASE,), locks, drop),
)
