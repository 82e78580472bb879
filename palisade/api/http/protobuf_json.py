"""JSON as etcd's gateway reads it: the mapping of protobuf to JSON (jsonpb), with the texts of Go's errors.

Only values of known fields with the right type are accepted. Bytes are padded base64 of the
standard alphabet (line ends are ignored, as Go does), int64 is a number or a string of digits, an enum is its name
or its number, null is the default. Names are snake_case or lowerCamelCase. Unknown fields are refused (issue 2),
which etcd's gateway does not do: see docs/etcd-compatibility.md.
"""

from __future__ import annotations

import binascii
import enum
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

INT64_MAX = (1 << 63) - 1
INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,40})")
LINE_ENDS = re.compile(r"[\r\n]")
ALPHABET = re.compile(r"[A-Za-z0-9+/]")
QUANTUM = re.compile(r"[A-Za-z0-9+/]{4}")
PADDED = re.compile(r"[A-Za-z0-9+/]{2}(==|[A-Za-z0-9+/]=)")
SHOWN_CHARACTERS = 100

Read = Callable[[Any], Any]


class BadJson(ValueError):
    """The text is not JSON, or a value has the wrong type. The message is that of Go if Go has one."""


class FloatText(str):
    """A number with a fraction or an exponent, as it was written."""

    __slots__ = ()


def _refuse_constant(name: str) -> Any:
    raise BadJson(f"invalid character '{name[0]}' looking for beginning of value")


_decoder: Any = json.JSONDecoder(parse_float=FloatText, parse_constant=_refuse_constant)
_scan: Callable[[str, int], tuple[Any, int]] = _decoder.scan_once
_whitespace = re.compile(r"[ \t\n\r]*")


def read_value(text: str, start: int = 0) -> tuple[Any, int]:
    """The JSON value at `start`, and the position after it and white space. Raises BadJson."""
    try:
        if not text.startswith("{", start):
            start = _skip(text, start)
        value, end = _scan(text, start)
    except StopIteration as stop:
        raise _syntax_error(text, stop.value) from None
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
            raise BadJson("unexpected EOF") from None
        raise BadJson(f"invalid JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise BadJson("invalid JSON: nested too deeply") from None
    except BadJson:
        raise
    except ValueError as error:
        raise BadJson(f"invalid JSON: {str(error)[:SHOWN_CHARACTERS]}") from None
    return value, end if end == len(text) else _skip(text, end)


def read_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(error) from None


def _not_utf8(error: UnicodeDecodeError) -> BadJson:
    return BadJson(f"invalid JSON: not UTF-8 at byte {error.start}")


def read_single(body: bytes) -> Any:
    """The one JSON value that a body holds; an empty body is an empty message, as in etcd's gateway."""
    if not body:
        return None
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise _not_utf8(error) from None
    value, end = read_value(text)
    if end != len(text):
        raise BadJson(f"invalid character {text[end]!r} after top-level value")
    return value


def _skip(text: str, start: int) -> int:
    match = _whitespace.match(text, start)
    return match.end() if match else start


def _syntax_error(text: str, position: int) -> BadJson:
    if position >= len(text):
        return BadJson("unexpected EOF")
    return BadJson(f"invalid character {text[position]!r} looking for beginning of value")


def kind_of(value: Any) -> str:
    """The name of a JSON value in Go."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, FloatText):
        return f"number {_short(value)}"
    if isinstance(value, int):
        return "number"
    return "string" if isinstance(value, str) else "object" if isinstance(value, dict) else "array"


def mismatch(value: Any, go_type: str) -> BadJson:
    return BadJson(f"json: cannot unmarshal {kind_of(value)} into Go value of type {go_type}")


def as_bytes(value: Any) -> bytes:
    if type(value) is not str:
        raise mismatch("" if isinstance(value, FloatText) else value, "[]uint8")
    try:
        return binascii.a2b_base64(value, strict_mode=True) if value else b""
    except ValueError:
        return _bytes_of_lines(value)


def _bytes_of_lines(value: str) -> bytes:
    text = LINE_ENDS.sub("", value)
    try:
        return binascii.a2b_base64(text, strict_mode=True) if text else b""
    except ValueError:
        raise BadJson(f"illegal base64 data at input byte {_first_bad(text)}") from None


def _first_bad(text: str) -> int:
    """The position of Go's error: the first invalid character, or the incomplete quantum at the end."""
    position = 0
    while match := QUANTUM.match(text, position):
        position = match.end()
    if PADDED.match(text, position):
        return position + 4
    rest = text[position : position + 4]
    return next((position + i for i, char in enumerate(rest) if not ALPHABET.match(char)), position)


def as_int64(value: Any) -> int:
    if type(value) is int:
        number = value
    elif type(value) is str:
        number = _quoted_int(value)
    else:
        raise mismatch(value, "int64")
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise BadJson(f"json: cannot unmarshal number {_short(str(number))} into Go value of type int64")
    return number


def _quoted_int(text: str) -> int:
    """The gateway strips the quotes of a number and reads the rest as JSON."""
    if INTEGER.fullmatch(text):
        return int(text)
    value, end = read_value(text) if text else (None, 0)
    if not text or end != len(text):
        raise BadJson("unexpected end of JSON input" if not text else f"invalid character {text[end]!r} after number")
    if value is None:
        return 0
    raise mismatch(value, "int64")


def as_bool(value: Any) -> bool:
    if type(value) is not bool:
        raise mismatch("" if isinstance(value, str) and not isinstance(value, FloatText) else value, "bool")
    return value


def as_enum(members: type[enum.IntEnum], go_type: str) -> Read:
    names = {member.name: member for member in members}

    def read(value: Any) -> Any:
        if type(value) is str:
            if value not in names:
                raise BadJson(f'unknown value "{_short(value)}" for enum {go_type}')
            return names[value]
        if type(value) is not int:
            raise mismatch(value, go_type)
        try:
            return members(value)
        except ValueError:
            raise BadJson(f"unknown value {_short(str(value))} for enum {go_type}") from None

    return read


def as_list(read: Read) -> Read:
    def read_list(value: Any) -> list[Any]:
        if type(value) is not list:
            raise mismatch(value, "[]json.RawMessage")
        return [read(item) for item in value]

    return read_list


class JsonMessage:
    """A message type: its name in etcd's proto files, and how each field is read."""

    __slots__ = ("_fields", "name")

    def __init__(self, name: str, fields: Mapping[str, Read]) -> None:
        self.name = name
        self._fields: dict[str, tuple[str, Read]] = {}
        for field, read in fields.items():
            self._fields[field] = self._fields[_camel(field)] = (field, read)

    def read(self, value: Any) -> dict[str, Any]:
        """Field name -> value, for fields that are present and not null. Raises BadJson."""
        if type(value) is not dict:
            if value is None:
                return {}
            raise mismatch(value, "map[string]json.RawMessage")
        found: dict[str, Any] = {}
        fields = self._fields
        for name, given in value.items():
            known = fields.get(name)
            if known is None:
                raise BadJson(f'unknown field "{_short(name)}" in {self.name}')
            if given is not None:
                found[known[0]] = known[1](given)
        return found


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "..."
