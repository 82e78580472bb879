"""Operations on tables, their columns, properties and devices. Pure.

A change of a table writes one row and is final once that is released to every node; until then it can be rolled back.
Dropping a table or devices hides them first, and removes their rows permanently after PROCEED (F9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from palisade.catalog import keys
from palisade.catalog.errors import AlreadyThere, BadField, NotAllowed, NotThere
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request, database_at, path_lock
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import a_choice, a_name, a_path, properties
from palisade.catalog.table import CATEGORIES, DELETING_MAX, CatalogTable, columns, devices
from palisade.catalog.types import TYPES

TABLE = Field("table", a_path(2, 2), "as database.table")
COLUMN = Field("column", a_name, "the name of the column")
TYPE = Field("type", a_choice(TYPES), f"one of {', '.join(TYPES)}")


def table_at(rows: CatalogRows, path: str) -> CatalogTable:
    """Raises NotThere, also for a table that is being dropped."""
    database_at(rows, path)
    found = rows.read(keys.at(keys.TABLES, path), CatalogTable.from_bytes)
    if found is None:
        raise NotThere(f"there is no table {path}; see the list of tables")
    if found.dropping:
        raise NotThere(f"table {path} is being dropped by procedure {found.dropping}")
    return found


def create(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    path = request["table"]
    database = database_at(rows, path)
    if rows.get(keys.at(keys.TABLES, path)) is not None:
        raise AlreadyThere(f"table {path} already exists")
    made = CatalogTable.of(path, drawn.object_id, database, request["columns"], request.get("properties", {}))
    return CatalogPlan({made.key: made.to_bytes()}, made=(made.data,))


def drop(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = table_at(rows, request["table"])
    hidden = replace(found, dropping=drawn.procedure)
    return CatalogPlan({found.key: hidden.to_bytes()}, destroy=(found.data,), finish={found.key: None})


def rename(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    """Changes both names in one transaction, so a reader always sees the table exactly once. Its rows do not move."""
    found = table_at(rows, request["table"])
    renamed = replace(found, name=request["to"])
    if rows.get(renamed.key) is not None:
        raise AlreadyThere(f"to: table {renamed.path} already exists")
    return CatalogPlan({found.key: None, renamed.key: renamed.to_bytes()})


def delete_devices(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    found = table_at(rows, request["table"])
    gone = request["devices"]
    if found.deleting:
        raise NotAllowed(f"devices of {found.path} are already being deleted: wait for that procedure")
    marked = replace(found, deleting=tuple(gone))
    return CatalogPlan(
        {found.key: marked.to_bytes()},
        destroy=tuple(f"{found.data}{name}/" for name in gone),
        finish={found.key: found.to_bytes()},
    )


def changed(
    change: Callable[[CatalogTable, Request], CatalogTable],
) -> Callable[[Request, CatalogRows, Drawn], CatalogPlan]:
    """The plan of a change of one row."""

    def plan(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
        found = table_at(rows, request["table"])
        after = change(found, request)
        return CatalogPlan({found.key: after.to_bytes()})

    return plan


def add_column(table: CatalogTable, request: Request) -> CatalogTable:
    spec = {"name": request["column"], "type": request["type"], "category": request["category"]}
    if spec["category"] != "field" and spec["type"] not in ("text", "string"):
        raise BadField(f"type: a {spec['category']} is text or string, not {spec['type']}")
    return table.with_column(spec)


def locks(request: Request) -> tuple[str, ...]:
    return (path_lock(request["table"]),)


def rename_locks(request: Request) -> tuple[str, ...]:
    database = keys.database_of(request["table"])
    return (path_lock(request["table"]), path_lock(f"{database}.{request['to']}"))


def kind(
    name: str, text: str, fields: tuple[Field, ...], change: Callable[[CatalogTable, Request], CatalogTable]
) -> OperationKind:
    return OperationKind(name, text, (TABLE, *fields), locks, changed(change))


KINDS = (
    OperationKind(
        "create-table",
        "Create a table.",
        (
            TABLE,
            Field("columns", columns, "name:type, or name:type:category (tag, attribute, field)", "columns"),
            Field("properties", properties, "a name and its text", "properties", required=False),
        ),
        locks,
        create,
    ),
    OperationKind("drop-table", "Drop a table and all its rows.", (TABLE,), locks, drop),
    OperationKind(
        "rename-table", "Give a table another name.", (TABLE, Field("to", a_name, "the new name")), rename_locks, rename
    ),
    kind(
        "add-column",
        "Add a column to a table.",
        (
            COLUMN,
            TYPE,
            Field("category", a_choice(CATEGORIES), "tag, attribute or field", required=False, default="field"),
        ),
        add_column,
    ),
    kind(
        "rename-column",
        "Give a column another name; it keeps its values.",
        (COLUMN, Field("to", a_name, "the new name")),
        lambda table, request: table.renamed_column(request["column"], request["to"]),
    ),
    kind(
        "alter-column-type",
        "Make the type of a column wider.",
        (COLUMN, TYPE),
        lambda table, request: table.retyped_column(request["column"], request["type"]),
    ),
    kind(
        "drop-column",
        "Drop a column; its values can no longer be read.",
        (COLUMN,),
        lambda table, request: table.without_column(request["column"]),
    ),
    kind(
        "set-table-properties",
        "Set properties of a table, or remove some.",
        (Field("properties", properties, "name and text; a name alone (null in JSON) removes it", "properties"),),
        lambda table, request: table.with_properties(request["properties"]),
    ),
    OperationKind(
        "delete-devices",
        "Delete devices of a table with all their rows.",
        (TABLE, Field("devices", devices, f"1 to {DELETING_MAX} names", "many")),
        locks,
        delete_devices,
    ),
)
