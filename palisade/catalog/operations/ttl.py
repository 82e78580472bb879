"""TTL rules: set and unset. Pure."""

from __future__ import annotations

from palisade.catalog import keys
from palisade.catalog.errors import NotThere
from palisade.catalog.operations.operation_kind import Drawn, Field, OperationKind, Request, database_at, path_lock
from palisade.catalog.plan import CatalogPlan, CatalogRows
from palisade.catalog.row_format import a_count, a_path
from palisade.catalog.ttl import TtlRule

PATH = Field("path", a_path(), "a database, a table, a device, or a path above one of them")


def set_(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    database_at(rows, request["path"])
    rule = TtlRule(request["path"], request["ttl_ms"])
    rows.get(rule.key)
    return CatalogPlan({rule.key: rule.to_bytes()})


def unset(request: Request, rows: CatalogRows, drawn: Drawn) -> CatalogPlan:
    key = keys.at(keys.TTL, request["path"])
    if rows.get(key) is None:
        raise NotThere(f"path: no TTL rule at {request['path']}")
    return CatalogPlan({key: None})


def locks(request: Request) -> tuple[str, ...]:
    return (path_lock(request["path"]),)


KINDS = (
    OperationKind(
        "set-ttl",
        "Keep the data at a path and below it for this long.",
        (PATH, Field("ttl_ms", a_count, "milliseconds", "number")),
        locks,
        set_,
    ),
    OperationKind("unset-ttl", "Remove the TTL rule of a path.", (PATH,), locks, unset),
)
