"""The rows of a decision, derived from its types: the same rule names the possible and the reached rows. Pure.

An enum has a row for each member. A union has those of its parts. A dataclass is one row, or one for each value of its
reason if that is an enum (`reason`, `case`), or one without and one with its flag (`truncates`). Thus a new member,
verdict or reason adds a row.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

WHY = ("reason", "case", "truncates")
Narrow = Mapping[type, tuple[enum.Enum, ...]]


def name_of(value: Any) -> str:
    """Of a result."""
    if value is None:
        return "none"
    if isinstance(value, enum.Enum):
        return _dashed(value.name)
    if isinstance(value, type):
        return _dashed(value.__name__)
    why = _why(type(value))
    name = _dashed(type(value).__name__)
    return name if why is None else _joined(name, why[0], getattr(value, why[0]))


def names_of(*kinds: Any, narrow: Narrow | None = None) -> list[str]:
    """Of all results of these types. `narrow`: the reasons of a dataclass, if its enum has others as well."""
    found: list[str] = []
    for kind in kinds:
        if get_origin(kind) in (Union, types.UnionType):
            found += names_of(*get_args(kind), narrow=narrow)
        elif kind is type(None):
            found.append(name_of(None))
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            found += map(name_of, kind)
        else:
            found += _of_class(kind, narrow or {})
    return list(dict.fromkeys(found))


def _of_class(kind: Any, narrow: Narrow) -> list[str]:
    why = _why(kind)
    if why is None:
        return [name_of(kind)]
    name, (field, of) = name_of(kind), why
    answers = (False, True) if of is bool else narrow.get(kind, tuple(of))
    return [_joined(name, field, each) for each in answers]


def _joined(name: str, field: str, why: Any) -> str:
    if isinstance(why, bool):
        return f"{name} {field}" if why else name
    return f"{name} {name_of(why)}"


def answers_of(decision: Any) -> Any:
    """The declared return types of a function."""
    return get_type_hints(decision)["return"]


@cache
def _why(kind: type) -> tuple[str, Any] | None:
    """The field of a dataclass that gives the reason, and its type."""
    hints = get_type_hints(kind) if is_dataclass(kind) else {}
    fields = ((name, hints[name]) for name in WHY if name in hints)
    return next(((name, hint) for name, hint in fields if issubclass(hint, enum.Enum | bool)), None)


@cache
def _dashed(name: str) -> str:
    """As `FULL_DISK` and as `FullDisk`: full-disk."""
    if name.isupper():
        return name.lower().replace("_", "-")
    words = "".join(f" {each.lower()}" if each.isupper() else each for each in name)
    return words.strip().replace(" ", "-").replace("_", "-")
