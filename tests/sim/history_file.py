"""A history as JSON lines: one event per line, in order; a loaded history equals the dumped one.

Every object has the name of its class in front, fields with default values are omitted, bytes are text if they are
ASCII.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterable, Iterator
from typing import Any

from palisade.metastore import requests, results
from tests.sim import seen
from tests.sim.history import History


def _known(*modules: Any) -> dict[str, type]:
    found = [kind for module in modules for kind in vars(module).values() if isinstance(kind, type)]
    return {
        kind.__name__: kind
        for kind in found
        if dataclasses.is_dataclass(kind) or issubclass(kind, enum.Enum) or hasattr(kind, "_fields")
    }


CLASSES = _known(requests, results, seen)


def dump(recorded: History) -> Iterator[str]:
    """Lines without line ends."""
    for event in recorded.events:
        yield json.dumps(_packed(event), separators=(",", ":"))


def load(lines: Iterable[str]) -> History:
    """Raises ValueError for an invalid line, NotBegun for an inconsistent history."""
    return History.of(_unpacked(json.loads(line)) for line in lines if line.strip())


def _packed(value: Any) -> Any:
    match value:
        case enum.Enum():
            return {"": type(value).__name__, "is": value.name}
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return {"b": value.decode()} if value.isascii() else {"x": value.hex()}
        case frozenset():
            return {"set": sorted(value)}
    if type(value) in (tuple, list):
        return [_packed(each) for each in value]
    return {"": type(value).__name__, **_fields(value)}


def _fields(value: Any) -> dict[str, Any]:
    if not dataclasses.is_dataclass(value):
        return {name: _packed(getattr(value, name)) for name in value._fields}
    return {
        field.name: _packed(held)
        for field in dataclasses.fields(value)
        if (held := getattr(value, field.name)) != field.default or field.default is dataclasses.MISSING
    }


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_unpacked, value))
    if not isinstance(value, dict):
        return value
    if "" in value:
        return _made(value)
    ((how, held),) = value.items()
    return {"b": str.encode, "x": bytes.fromhex, "set": frozenset}[how](held)


def _made(value: dict[str, Any]) -> Any:
    kind = CLASSES.get(value.pop(""))
    if kind is None:
        raise ValueError(f"no part of a history: {value}")
    if issubclass(kind, enum.Enum):
        return kind[value["is"]]
    return kind(**{name: _unpacked(held) for name, held in value.items()})
