"""The JSON form of a transaction. Pure.

    {"compare": [{"target": "version", "key": "/leader", "relation": "=", "operand": 0}],
     "success": [{"put": {"key": "/leader", "value": "n1"}}, {"txn": {"success": [...]}}],
     "failure": [{"range": {"key": "/leader"}}]}

Operations are put, delete, range and txn. Keys and values are "key", "value", or "key_base64", "value_base64"; a range,
delete or compare of all keys with a prefix has "prefix": true. "then" and "else" are old names of the branches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from palisade.base.content import from_base64
from palisade.base.network_reason import reason_of
from palisade.cli.txn_form import OLD_SECTIONS, SECTIONS, FormError, Operation, compare, key_bytes, number, quoted
from palisade.metastore.requests import Compare, DeleteRange, Put, Range, Txn, prefix_end

KEY_FIELDS = {"key", "key_base64"}


def parse_json(text: str, old: set[str]) -> Txn:
    """`old`: gets the old names of sections that are used. Raises FormError."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FormError(f"this is not JSON: {reason_of(error)}") from None
    found = _json_txn(content, "the transaction")
    old |= _old_names(content)
    return found


def _old_names(content: Any) -> set[str]:
    """Of the branches, at any depth."""
    if isinstance(content, list):
        return set().union(*map(_old_names, content))
    if not isinstance(content, dict):
        return set()
    return (content.keys() & OLD_SECTIONS.keys()) | set().union(*map(_old_names, content.values()))


def _json_txn(content: Any, place: str) -> Txn:
    given = _fields(content, place, {*SECTIONS, *OLD_SECTIONS})
    fields = {OLD_SECTIONS.get(name, name): value for name, value in given.items()}
    if len(fields) < len(given):
        raise FormError(f"{place}: gives a branch twice; use 'success' and 'failure'")
    lists = {}
    for name in SECTIONS:
        lists[name] = fields.get(name, [])
        if not isinstance(lists[name], list):
            raise FormError(f"{place}: {name!r} is not a list")
    return Txn(
        compare=tuple(_json_compare(each, f"compare {n}") for n, each in enumerate(lists["compare"], 1)),
        success=tuple(_json_operation(each, f"success {n}") for n, each in enumerate(lists["success"], 1)),
        failure=tuple(_json_operation(each, f"failure {n}") for n, each in enumerate(lists["failure"], 1)),
    )


def _json_compare(content: Any, place: str) -> Compare:
    known = {"target", "relation", "operand", "operand_base64", "prefix"} | KEY_FIELDS
    fields = _fields(content, place, known)
    key = _json_bytes(fields, "key", place)
    operand: Any = fields.get("operand")
    if "operand_base64" in fields:
        operand = _json_bytes(fields, "operand", place)
    try:
        return compare(
            str(fields.get("target")), key, str(fields.get("relation", "=")), operand, _json_end(fields, key, place)
        )
    except FormError as error:
        raise FormError(f"{place}: {error}") from None


def _json_operation(content: Any, place: str) -> Operation:
    if not isinstance(content, Mapping) or len(content) != 1:
        raise FormError(f'{place}: is not one operation such as {{"put": {{"key": "/a", "value": "x"}}}}')
    ((name, inner),) = content.items()
    if name == "txn":
        return _json_txn(inner, f"{place}: txn")
    if name == "put":
        fields = _fields(inner, place, KEY_FIELDS | {"value", "value_base64", "lease"})
        lease = number("lease", fields.get("lease", 0))
        return Put(_json_bytes(fields, "key", place), _json_bytes(fields, "value", place), lease=lease)
    if name == "delete":
        fields = _fields(inner, place, KEY_FIELDS | {"prefix"})
        key = _json_bytes(fields, "key", place)
        return DeleteRange(key, _json_end(fields, key, place))
    if name == "range":
        fields = _fields(inner, place, KEY_FIELDS | {"prefix", "limit"})
        key = _json_bytes(fields, "key", place)
        return Range(key, _json_end(fields, key, place), limit=number("limit", fields.get("limit", 0)))
    raise FormError(f"{place}: {quoted(name)} is not one of put, delete, range, txn")


def _fields(content: Any, place: str, known: set[str]) -> Mapping[str, Any]:
    if not isinstance(content, Mapping):
        raise FormError(f"{place}: is not an object")
    if unknown := sorted(set(content) - known):
        raise FormError(f"{place}: unknown field {quoted(unknown[0])}; known are {', '.join(sorted(known))}")
    return content


def _json_bytes(fields: Mapping[str, Any], name: str, place: str) -> bytes:
    plain, encoded = fields.get(name), fields.get(f"{name}_base64")
    if isinstance(encoded, str) and plain is None:
        try:
            return from_base64(encoded)
        except ValueError as error:
            raise FormError(f"{place}: {name}_base64 {error}") from None
    if not isinstance(plain, str) or encoded is not None:
        raise FormError(f"{place}: give either {name!r}, as a text, or '{name}_base64'")
    return key_bytes(plain)


def _json_end(fields: Mapping[str, Any], key: bytes, place: str) -> bytes:
    prefix = fields.get("prefix", False)
    if not isinstance(prefix, bool):
        raise FormError(f"{place}: 'prefix' is true or false")
    return prefix_end(key) if prefix else b""
