"""Operations on logical views: create, alter, delete. Pure."""

from __future__ import annotations

from palisade.catalog import keys
from palisade.catalog.errors import AlreadyThere, NotThere
from palisade.catalog.operations.devices import device_at, template_at
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request, database_at, path_lock
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import a_path
from palisade.catalog.view import CatalogView

VIEW = Field("view", a_path(2), "its path")
SOURCE = Field("source", a_path(3), "a time series, as database.node.series")


def check_source(rows: CatalogRows, source: str) -> None:
    """Raises NotThere."""
    path, _, name = source.rpartition(".")
    device = device_at(rows, path)
    if device.template and any(each.name == name for each in template_at(rows, device.template).series):
        return
    device.one(name)


def view_at(rows: CatalogRows, path: str) -> CatalogView:
    """Raises NotThere."""
    database_at(rows, path)
    found = rows.read(keys.at(keys.VIEWS, path), CatalogView.from_bytes)
    if found is None:
        raise NotThere(f"there is no view {path}; see the list of views")
    return found


def create(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    made = CatalogView(request["view"], request["source"])
    database_at(rows, made.path)
    if rows.get(made.key) is not None:
        raise AlreadyThere(f"view {made.path} already exists")
    check_source(rows, made.source)
    return CatalogPlan({made.key: made.to_bytes()})


def alter(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    after = CatalogView(view_at(rows, request["view"]).path, request["source"])
    check_source(rows, after.source)
    return CatalogPlan({after.key: after.to_bytes()})


def delete(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    return CatalogPlan({view_at(rows, request["view"]).key: None})


def locks(request: Request) -> tuple[str, ...]:
    return (path_lock(request["view"]),)


def source_locks(request: Request) -> tuple[str, ...]:
    """Includes the source, whose creation may still be rolled back."""
    return (*locks(request), path_lock(request["source"].rpartition(".")[0]))


KINDS = (
    OperationKind("create-view", "Create an alias path of a time series.", (VIEW, SOURCE), source_locks, create),
    OperationKind("alter-view", "Change the time series of a view.", (VIEW, SOURCE), source_locks, alter),
    OperationKind("delete-view", "Delete a view; its source stays.", (VIEW,), locks, delete),
)
