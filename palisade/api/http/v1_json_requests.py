"""The JSON forms of /v1 as requests of the metadata store. Pure.

A key or value is text in `key`, `value`, or base64 in `key_base64`, `value_base64`. Transactions have the form that the
command line also reads (docs/cli.md), with every option of the operations.
"""

from __future__ import annotations

from typing import Any

from palisade.api.http.request_body import (
    Spec,
    a_count,
    a_flag,
    a_list,
    a_number,
    content,
    content_base64,
    fields_of,
    one_of,
    shown,
)
from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    DeleteRange,
    Put,
    Range,
    SortOrder,
    SortTarget,
    Txn,
    prefix_end,
)
from palisade.wire.error_codes import BadRequest

NESTING_MAX = 64

PUT: Spec = {
    "key": content,
    "value": content,
    "lease": a_number,
    "prev_kv": a_flag,
    "ignore_value": a_flag,
    "ignore_lease": a_flag,
}
WHERE: Spec = {"key": content, "range_end": content, "prefix": a_flag}
DELETE: Spec = {**WHERE, "prev_kv": a_flag}
RANGE: Spec = {
    **WHERE,
    "limit": a_count,
    "revision": a_count,
    "sort_order": one_of({order.name.lower(): order for order in SortOrder}),
    "sort_target": one_of({target.name.lower(): target for target in SortTarget}),
    "serializable": a_flag,
    "keys_only": a_flag,
    "count_only": a_flag,
    "min_mod_revision": a_count,
    "max_mod_revision": a_count,
    "min_create_revision": a_count,
    "max_create_revision": a_count,
}
COMPARE: Spec = {
    **WHERE,
    "target": one_of({target.name.lower(): target for target in CompareTarget}),
    "relation": one_of(
        {
            "=": CompareResult.EQUAL,
            "!=": CompareResult.NOT_EQUAL,
            ">": CompareResult.GREATER,
            "<": CompareResult.LESS,
        }
    ),
    "operand": lambda value, name: value,
    "operand_base64": content_base64,
}
OLD_BRANCHES = {"success": "then", "failure": "else"}
"""Names of earlier versions, which are still read (docs/vocabulary.md)."""
TXN: Spec = dict.fromkeys(("compare", *OLD_BRANCHES, *OLD_BRANCHES.values()), a_list)


def put_from(value: Any, place: str = "the body") -> Put:
    return Put(**with_key(fields_of(value, PUT, place), place))


def delete_from(value: Any, place: str = "the body") -> DeleteRange:
    return DeleteRange(**whereabouts(fields_of(value, DELETE, place), place))


def range_from(value: Any, place: str = "the body") -> Range:
    return Range(**whereabouts(fields_of(value, RANGE, place), place))


def with_key(found: dict[str, Any], place: str) -> dict[str, Any]:
    if "key" not in found:
        raise BadRequest(f"{place}: key is missing")
    return found


def whereabouts(found: dict[str, Any], place: str) -> dict[str, Any]:
    """`prefix` as a range end. The prefix "" selects every key."""
    prefix = found.pop("prefix", False)
    if not prefix:
        return with_key(found, place)
    if "range_end" in found:
        raise BadRequest(f"{place}: give either prefix or range_end")
    key = found.get("key", b"")
    return found | {"key": key or b"\0", "range_end": prefix_end(key)}


def txn_from(value: Any, place: str = "the body", depth: int = 0) -> Txn:
    if depth > NESTING_MAX:
        raise BadRequest(f"transactions are nested deeper than {NESTING_MAX}: flatten them")
    found = fields_of(value, TXN, place)
    above = "" if place == "the body" else f"{place}: "
    return Txn(
        tuple(compare_from(each, f"{above}compare {n}") for n, each in enumerate(found.get("compare", ()), 1)),
        branch_from(found, "success", place, above, depth),
        branch_from(found, "failure", place, above, depth),
    )


def branch_from(found: dict[str, Any], name: str, place: str, above: str, depth: int) -> tuple[Any, ...]:
    """The operations of one branch, under its name or its old one."""
    old = OLD_BRANCHES[name]
    if name in found and old in found:
        raise BadRequest(f"{place}: gives a branch twice, as {name} and as {old}: use {name}")
    given = old if old in found else name
    return tuple(operation_from(each, f"{above}{given} {n}", depth) for n, each in enumerate(found.get(given, ()), 1))


def operation_from(value: Any, place: str, depth: int) -> Put | DeleteRange | Range | Txn:
    if type(value) is not dict or len(value) != 1:
        raise BadRequest(f'{place}: {shown(value)} is not one operation such as {{"put": {{"key": "a"}}}}')
    ((name, inner),) = value.items()
    if name == "put":
        return put_from(inner, f"{place}: put")
    if name == "delete":
        return delete_from(inner, f"{place}: delete")
    if name == "range":
        return range_from(inner, f"{place}: range")
    if name == "txn":
        return txn_from(inner, f"{place}: txn", depth + 1)
    raise BadRequest(f"{place}: {shown(name)} is not one of put, delete, range, txn")


def compare_from(value: Any, place: str) -> Compare:
    found = fields_of(value, COMPARE, place)
    if "target" not in found:
        raise BadRequest(f"{place}: target is missing")
    target = found["target"]
    if "operand" not in found and "operand_base64" not in found:
        raise BadRequest(f"{place}: operand is missing")
    given = whereabouts({name: found[name] for name in WHERE if name in found}, place)
    return Compare(
        key=given["key"],
        target=target,
        result=found.get("relation", CompareResult.EQUAL),
        operand=_operand(found, target, place),
        range_end=given.get("range_end", b""),
    )


def _operand(found: dict[str, Any], target: CompareTarget, place: str) -> int | bytes:
    if target is not CompareTarget.VALUE:
        return a_number(found.get("operand"), f"{place}: operand")
    if "operand_base64" in found:
        operand: bytes = found["operand_base64"]
        return operand
    return content(found["operand"], f"{place}: operand")
