"""Encodes a procedure as canonical JSON, which is readable with any client. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palisade.catalog import keys
from palisade.catalog.errors import CatalogError, NotAllowed
from palisade.catalog.plan import Changes
from palisade.catalog.procedures import RECORD_BYTES_MAX, Failed, Procedure, ProcedureDone, ProcedureState, damaged


def to_bytes(procedure: Procedure) -> bytes:
    """Raises NotAllowed for a record above the size limit."""
    value = {
        "id": procedure.id,
        "kind": procedure.kind,
        "request": dict(procedure.request),
        "object_id": procedure.object_id,
        "state": procedure.state.value,
        "locks": list(procedure.locks),
        "done": [[each.step, each.node, each.at_ms, each.text, each.revision] for each in procedure.done],
        "undo": as_text(procedure.undo),
        "finish": as_text(procedure.finish),
        "destroy": list(procedure.destroy),
        "made": list(procedure.made),
        "gone": procedure.gone,
        "destroyed": procedure.destroyed,
        "failed": None if procedure.failed is None else [procedure.failed.code, procedure.failed.text],
    }
    packed = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(packed) > RECORD_BYTES_MAX:
        raise NotAllowed(
            f"the record of procedure {procedure.id} would take {len(packed)} bytes, the limit is {RECORD_BYTES_MAX}: "
            "change less at once"
        )
    return packed


def from_bytes(key: bytes, packed: bytes, revision: int) -> Procedure:
    """Raises DamagedRow."""
    try:
        value = json.loads(packed)
        found = Procedure(
            text(value["id"]),
            text(value["kind"]),
            an_object(value["request"]),
            text(value["object_id"]),
            ProcedureState(value["state"]),
            tuple(map(text, value["locks"])),
            tuple(a_step(*each) for each in value["done"]),
            as_bytes(value["undo"]),
            as_bytes(value["finish"]),
            tuple(map(removable, value["destroy"])),
            tuple(map(removable, value["made"])),
            number(value["gone"]),
            number(value["destroyed"]),
            None if value["failed"] is None else Failed(*map(text, value["failed"])),
            revision,
        )
        if found.key != key or not found.done:
            raise ValueError("its ID differs from its key, or it has no history")
        found.operation.name  # noqa: B018 - raises for an unknown one
        return found
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, CatalogError) as error:
        raise damaged(key, str(error)) from None


def a_step(step: Any, node: Any, at_ms: Any, what: Any, revision: Any) -> ProcedureDone:
    return ProcedureDone(text(step), text(node), number(at_ms), text(what), number(revision))


def as_text(changes: Changes) -> dict[str, str | None]:
    return {key.decode(): None if value is None else value.decode() for key, value in changes.items()}


def as_bytes(changes: Any) -> dict[bytes, bytes | None]:
    return {key.encode(): None if value is None else text(value).encode() for key, value in an_object(changes).items()}


def removable(value: Any) -> str:
    """A prefix whose rows a procedure may remove: one object in one of the places for data or catalog objects."""
    prefix = text(value)
    for place in (keys.DATA, *(inside.decode() for inside in keys.INSIDE)):
        if prefix.startswith(place) and prefix.endswith("/") and len(prefix) > len(place) + 1:
            return prefix
    raise ValueError(f"{prefix!r:.60} is not a prefix that a procedure may remove")


def text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r:.40} is not a text")
    return value


def number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is not a whole number")
    return value


def an_object(value: Any) -> Mapping[str, Any]:
    if type(value) is not dict:
        raise TypeError(f"{value!r:.40} is not an object")
    return value
