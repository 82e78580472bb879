"""Procedures and operations in the shapes of the HTTP API. Pure; contains no password and no hash of one."""

from __future__ import annotations

from typing import Any

from palisade.catalog.collections import COLLECTIONS
from palisade.catalog.operations.all import KINDS
from palisade.catalog.operations.operation_kind import OperationKind
from palisade.catalog.procedures import Procedure, ProcedureState


def procedure_view(procedure: Procedure, waiting_for: list[str], *, released: bool = False) -> dict[str, Any]:
    """Shape `Procedure` of the API. `released`: every node shows its end, or nothing."""
    secret = procedure.operation.secret
    failed = procedure.failed
    return {
        "id": procedure.id,
        "kind": procedure.kind,
        "state": procedure.state.value,
        "ended": procedure.ended,
        "released": released,
        "request": {name: value for name, value in procedure.request.items() if name != secret},
        "revision": procedure.revision,
        "destroyed": procedure.destroyed,
        "locks": list(procedure.locks),
        "error": None if failed is None else {"code": failed.code, "message": failed.text},
        "waiting": waiting_view(procedure, waiting_for),
        "steps": [
            {
                "step": each.step,
                "node": each.node,
                "at_ms": each.at_ms,
                "text": each.text,
                "revision": each.revision or procedure.revision,
            }
            for each in procedure.done
        ],
    }


def waiting_view(procedure: Procedure, waiting_for: list[str]) -> dict[str, Any] | None:
    """What it waits for now: the release of a revision, and the nodes that have not acknowledged it."""
    if procedure.state is not ProcedureState.PREPARED:
        return None
    return {"revision": procedure.revision, "for": waiting_for}


def operations_view() -> dict[str, Any]:
    """All operations and collections: GET /v1/catalog."""
    return {
        "collections": list(COLLECTIONS),
        "operations": [operation_view(kind) for kind in KINDS.values()],
    }


def operation_view(kind: OperationKind) -> dict[str, Any]:
    return {
        "name": kind.name,
        "help": kind.help,
        "keeps": kind.keeps,
        "fields": [{"name": each.name, "required": each.required, "help": each.help} for each in kind.fields],
    }
