"""Entries as lines of JSON: {"key": "...", "value": ...}. Pure.

A value that is not a string is stored as compact JSON; bytes are given as key_base64 and value_base64.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from palisade.base.content import from_base64
from palisade.base.key_text import key_text
from palisade.base.network_reason import json_reason, reason_of
from palisade.catalog.demo.entries import CatalogEntry
from palisade.service.strict_commands import OWN
from palisade.wire.fencing_errors import ReservedKey

FIELDS = {"key", "key_base64", "value", "value_base64"}
EXAMPLE = '{"key": "/a", "value": "x"}'


class LineError(ValueError):
    """An invalid line: its number, and the error."""

    code = "bad-input"


class ReservedLine(LineError):
    """A line with a key that only the cluster itself may write."""

    code = ReservedKey.code


def read_entries(lines: Iterable[bytes]) -> list[CatalogEntry]:
    """Empty lines are skipped; the last line of a key counts. Raises LineError for the first invalid line, or one with
    a key of the cluster itself."""
    entries: dict[bytes, CatalogEntry] = {}
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                entry = read_entry(json.loads(line.decode("utf-8-sig")))
            except json.JSONDecodeError as error:
                text = f"{json_reason(error)} at column {error.colno}; give an object such as {EXAMPLE}"
                raise LineError(f"line {number}: {text}") from None
            except (ValueError, RecursionError) as error:
                raise LineError(f"line {number}: {reason_of(error)}") from None
            if entry.key.startswith(OWN):
                text = f"{key_text(entry.key)}: keys under {OWN.decode()} are the cluster's own"
                raise ReservedLine(f"line {number}: {text}")
            entries[entry.key] = entry
    return list(entries.values())


def read_entry(content: Any) -> CatalogEntry:
    """Raises ValueError."""
    if not isinstance(content, Mapping):
        raise ValueError(f"is not an object such as {EXAMPLE}")
    if unknown := sorted(set(content) - FIELDS):
        raise ValueError(f"unknown field {unknown[0]!r:.60}; known are {', '.join(sorted(FIELDS))}")
    if not isinstance(content.get("key", ""), str):
        raise ValueError("key is not a string")
    key = field_bytes(content, "key")
    if not key:
        raise ValueError("the key is empty")
    return CatalogEntry(key, field_bytes(content, "value"))


def field_bytes(content: Mapping[str, Any], name: str) -> bytes:
    """The bytes of a field, given as text or in base64. Raises ValueError unless it is given once."""
    encoded = content.get(f"{name}_base64")
    if (name in content) == (encoded is not None):
        raise ValueError(f"give either {name} or {name}_base64")
    if encoded is None:
        value = content[name]
        text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)
        return text.encode("utf-8")
    if not isinstance(encoded, str):
        raise ValueError(f"{name}_base64 is not a string")
    try:
        return from_base64(encoded)
    except ValueError as error:
        raise ValueError(f"{name}_base64 {error}") from None
