"""Names of targets, relations and sections, the same in both written forms of a transaction. Pure."""

from __future__ import annotations

from typing import Any

from palisade.cli.printing import shorten
from palisade.metastore.command_codec import INT_MAX, INT_MIN
from palisade.metastore.requests import Compare, CompareResult, CompareTarget, DeleteRange, Put, Range, Txn

Operation = Put | DeleteRange | Range | Txn
TARGETS = {target.name.lower(): target for target in CompareTarget}
RELATIONS = {
    "=": CompareResult.EQUAL,
    "!=": CompareResult.NOT_EQUAL,
    ">": CompareResult.GREATER,
    "<": CompareResult.LESS,
}
SECTIONS = ("compare", "success", "failure")
OLD_SECTIONS = {"then": "success", "else": "failure"}
"""Names of earlier versions, which are still accepted (docs/vocabulary.md)."""


class FormError(ValueError):
    """A transaction that cannot be parsed: the place, the error, and the correct form."""


def compare(target: str, key: bytes, relation: str, operand: Any, range_end: bytes) -> Compare:
    if target not in TARGETS:
        raise FormError(f"{quoted(target)} is not one of {', '.join(TARGETS)}")
    if relation not in RELATIONS:
        raise FormError(f"{quoted(relation)} is not one of {' '.join(RELATIONS)}")
    if TARGETS[target] is CompareTarget.VALUE:
        value: int | bytes = operand if isinstance(operand, bytes) else key_bytes(str(operand))
    else:
        value = number("operand", operand)
    return Compare(key, TARGETS[target], RELATIONS[relation], value, range_end)


def number(name: str, value: Any) -> int:
    try:
        if isinstance(value, bool | float | bytes):
            raise ValueError
        found = int(value, 16) if isinstance(value, str) and value.startswith("0x") else int(value)
    except (TypeError, ValueError):
        raise FormError(f"{name} {quoted(value)} is not a whole number") from None
    if not INT_MIN <= found <= INT_MAX:
        raise FormError(f"{name} {value!s:.60} does not fit in 64 bits")
    return found


def key_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def quoted(value: Any) -> str:
    """For an error: the whole value may be as long as the file."""
    return repr(shorten(value)) if isinstance(value, str) else shorten(repr(value))
