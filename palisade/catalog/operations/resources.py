"""Operations on resources: create, alter, drop. Pure."""

from __future__ import annotations

from palisade.catalog import keys
from palisade.catalog.errors import AlreadyThere, NotThere
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.resource import Resource, read_definition, read_path

RESOURCE = Field("resource", read_path, "its kind and name, as function.area or quota.alice")
DEFINITION = Field("definition", read_definition, "its definition, text in any format")


def create(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    made = Resource(request["resource"], request["definition"])
    if rows.get(made.key) is not None:
        raise AlreadyThere(f"resource {made.path} already exists; change it with alter-resource")
    return CatalogPlan({made.key: made.to_bytes()})


def alter(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    after = Resource(resource_at(rows, request["resource"]).path, request["definition"])
    return CatalogPlan({after.key: after.to_bytes()})


def drop(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    return CatalogPlan({resource_at(rows, request["resource"]).key: None})


def resource_at(rows: CatalogRows, path: str) -> Resource:
    """Raises NotThere."""
    found = rows.read(keys.at(keys.RESOURCES, path), Resource.from_bytes)
    if found is None:
        raise NotThere(f"there is no resource {path}; see the list of resources")
    return found


def locks(request: Request) -> tuple[str, ...]:
    return ("resources/" + request["resource"].replace(".", "/") + "/",)


KINDS = (
    OperationKind(
        "create-resource", "Create a function, quota or other resource.", (RESOURCE, DEFINITION), locks, create
    ),
    OperationKind("alter-resource", "Replace the definition of a resource.", (RESOURCE, DEFINITION), locks, alter),
    OperationKind("drop-resource", "Drop a resource.", (RESOURCE,), locks, drop),
)
