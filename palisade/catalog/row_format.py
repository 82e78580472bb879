"""The format of catalog rows: JSON with sorted names, so that rows are readable and equal values have equal bytes. And
the readers of fields, whose errors name the field. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from palisade.base.counted import counted
from palisade.catalog.errors import BadField, DamagedRow, NewerRow

T = TypeVar("T")
Read = Callable[[Any, str], Any]

FORMAT = 1
"""Of rows that this version writes. The field may be omitted, as earlier versions do."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")
PATH_DEPTH_MAX = 12
PROPERTIES_MAX = 64
PROPERTY_BYTES_MAX = 1024
ROW_BYTES_MAX = 128 * 1024
NUMBER_MAX = (1 << 63) - 1
SHOWN = 60


def to_bytes(value: Mapping[str, Any]) -> bytes:
    """Raises BadField for a row that is too large: the record of a procedure must hold several rows."""
    packed = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    if len(packed) > ROW_BYTES_MAX:
        raise BadField(f"the row would take {len(packed)} bytes, the limit is {ROW_BYTES_MAX}: split the object")
    return packed


def from_bytes(key: bytes, packed: bytes, read: Callable[[Any], T]) -> T:
    """Raises DamagedRow: the row was not written by the catalog; NewerRow: it was, by a newer version."""
    name = key.decode("utf-8", "backslashreplace")[:200]
    try:
        value = json.loads(packed)
        if type(value) is not dict:
            raise TypeError("not a JSON object")
        if (found := a_count(value.get("format", FORMAT), "format")) > FORMAT:
            raise NewerRow(
                f"catalog row {name} has format {found}, this version reads {FORMAT}: install a newer version"
            )
        return read(value)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, BadField) as error:
        raise DamagedRow(
            f"damaged catalog row {name} ({error}): restore its value from a backup or from an older revision"
        ) from None


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def a_name(value: Any, field: str) -> str:
    """1 to 64 ASCII letters, digits, _ and -; must not begin with -."""
    if type(value) is not str or not NAME.fullmatch(value):
        raise BadField(f"{field}: invalid name {shown(value)}: use 1 to 64 of A-Z a-z 0-9 _ -, not beginning with -")
    return value


def a_path(least: int = 1, most: int = PATH_DEPTH_MAX) -> Read:
    """Names joined by dots, the database first."""

    def read(value: Any, field: str) -> str:
        names = value.split(".") if type(value) is str else []
        if not (least <= len(names) <= most and all(map(NAME.fullmatch, names))):
            wanted = f"{least}" if least == most else f"{least} to {most}"
            example = ".".join(["plant", "line1", "pump7", "pressure"][: max(least, 2 if most > 1 else 1)])
            raise BadField(
                f"{field}: invalid path {shown(value)}: use {wanted} names joined by dots, such as {example}"
            )
        return str(value)

    return read


def a_choice(choices: Sequence[str]) -> Read:
    def read(value: Any, field: str) -> str:
        if type(value) is not str or value not in choices:
            raise BadField(f"{field}: {shown(value)} is not one of {', '.join(choices)}")
        return value

    return read


def a_count(value: Any, field: str) -> int:
    """At least 1. Accepts digits as text, for the command line."""
    if type(value) is str and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if type(value) is not int or not 1 <= value <= NUMBER_MAX:
        raise BadField(f"{field}: {shown(value)} is not a whole number from 1 to {NUMBER_MAX}")
    return value


def a_flag(value: Any, field: str) -> bool:
    if type(value) is not bool:
        raise BadField(f"{field}: {shown(value)} is neither true nor false")
    return value


def text_up_to(characters: int, least: int = 0) -> Read:
    def read(value: Any, field: str) -> str:
        if type(value) is not str:
            raise BadField(f"{field}: {shown(value)} is not a text")
        if not least <= len(value) <= characters:
            raise BadField(f"{field}: has {counted(len(value), 'character')}, allowed are {least} to {characters}")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadField(f"{field}: is not valid Unicode") from None
        return value

    return read


def list_of(read: Read, most: int, least: int = 1) -> Read:
    def read_all(value: Any, field: str) -> list[Any]:
        if type(value) is not list or not least <= len(value) <= most:
            found = f"a list of {len(value)}" if type(value) is list else shown(value)
            raise BadField(f"{field}: is {found}, but must be a list of {least} to {most}")
        return [read(each, f"{field}[{number}]") for number, each in enumerate(value)]

    return read_all


def names_once(read: Read) -> Read:
    """Wraps `list_of` and rejects duplicate names, given as text or as the `name` of objects."""

    def read_all(value: Any, field: str) -> list[Any]:
        found: list[Any] = read(value, field)
        seen: set[str] = set()
        for each in found:
            name = each if isinstance(each, str) else each["name"]
            if name in seen:
                raise BadField(f"{field}: {name} is given twice")
            seen.add(name)
        return found

    return read_all


def properties(value: Any, field: str) -> dict[str, str | None]:
    """Name -> text; None to remove a property."""
    if type(value) is not dict or len(value) > PROPERTIES_MAX:
        raise BadField(f"{field}: {shown(value)} is not an object of at most {PROPERTIES_MAX} properties")
    read = text_up_to(PROPERTY_BYTES_MAX)
    return {
        a_name(name, f"the name of a property in {field}"): None if inner is None else read(inner, f"{field}.{name}")
        for name, inner in value.items()
    }


def object_of(spec: Mapping[str, Read], optional: Mapping[str, Any]) -> Read:
    """An object with these fields. `optional`: defaults of fields that may be omitted."""

    def read(value: Any, field: str) -> dict[str, Any]:
        if type(value) is not dict:
            raise BadField(f"{field}: {shown(value)} is not an object")
        for given in value:
            if given not in spec:
                raise BadField(f"{field}: unknown field {shown(given)}; known are {', '.join(spec)}")
        found: dict[str, Any] = {}
        for name, inner in spec.items():
            if value.get(name) is not None:
                found[name] = inner(value[name], f"{field}.{name}" if field else name)
            elif name in optional:
                found[name] = optional[name]
            else:
                raise BadField(f"{f'{field}.' if field else ''}{name}: is missing")
        return found

    return read
