"""Copies of a world, and keys that are equal exactly if two worlds behave alike."""

from __future__ import annotations

import enum
from collections import deque
from functools import cache
from typing import Any

from tests.support.fencing_parts import Scope

VALUES = (int, float, str, bytes, type(None), tuple, enum.Enum, type, Scope)
FOR_SHOW = {
    "reads", "scope", "_timing", "_finished", "heard_at", "granted_at", "fenced_at", "_order", "_proven",
    "_last_failure", "said",
}  # fmt: skip
"""Fields on which no decision depends."""


@cache
def names_of(kind: type) -> tuple[str, ...] | None:
    """The fields of its instances; None: they are values, or frozen."""
    params = getattr(kind, "__dataclass_params__", None)
    if issubclass(kind, VALUES) or (params is not None and params.frozen):
        return None
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if not name.startswith("__")]
    return tuple(slots) if params is None or not hasattr(kind, "__dict__") else tuple(kind.__dataclass_fields__)


def freeze(thing: Any) -> Any:
    kind = type(thing)
    if kind is list or kind is deque:
        return tuple([freeze(each) for each in thing])
    if kind is dict:
        return tuple([(key, freeze(value)) for key, value in thing.items()])
    if kind is tuple:
        return tuple([freeze(each) for each in thing]) if thing else thing
    names = names_of(kind)
    if names is None:
        fields = getattr(kind, "__dataclass_fields__", None)
        return thing if fields is None else (kind, *[freeze(getattr(thing, name)) for name in fields])
    return tuple([freeze(getattr(thing, name)) for name in names if name not in FOR_SHOW])


def clone(thing: Any) -> Any:
    kind = type(thing)
    if kind is list:
        return [clone(each) for each in thing]
    if kind is deque:
        return deque([clone(each) for each in thing], thing.maxlen)
    if kind is dict:
        return {key: clone(value) for key, value in thing.items()}
    names = names_of(kind)
    if names is None:
        return thing
    made = kind.__new__(kind)
    for name in names:
        setattr(made, name, None if name == "_order" else clone(getattr(thing, name)))
    return made
