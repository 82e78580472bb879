"""Rows of a DataFrame as writes; rows that cannot be written, with the reason. Pure.

A duplicate key is rejected with all its rows, because the rows of a DataFrame have no order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palisade.base.counted import counted
from palisade.base.key_text import key_text
from palisade.metastore.limits import Limits
from palisade.pipeline.errors import BadOption, PipelineError

PUT, DELETE = "put", "delete"
COLUMNS = ("key", "value", "op")
OVERHEAD_BYTES = 64
"""Of an operation in its transaction, besides key and value."""
SHOWN_KEY, SHOWN_REASON = 200, 500


class BatchTooLarge(PipelineError):
    """The batch does not fit into one transaction, and its target does not permit a larger one."""


class RowsRejected(PipelineError):
    """The batch has rows that cannot be written, and no rejects were requested."""


@dataclass(frozen=True, slots=True)
class RowWrite:
    """`value` None: a delete."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        """Its approximate size in its transaction."""
        return len(self.key) + len(self.value or b"") + OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Reject:
    key: str
    reason: str

    @property
    def value(self) -> bytes:
        return json.dumps({"key": self.key, "reason": self.reason}).encode()

    @property
    def size_bytes(self) -> int:
        """Its approximate size in its transaction, with its key."""
        return len(self.value) + 2 * OVERHEAD_BYTES

    @staticmethod
    def of(value: bytes) -> Reject:
        return Reject(**json.loads(value))


@dataclass(slots=True)
class BatchRows:
    """Rows of a batch that fits one transaction."""

    limits: Limits
    writes: list[RowWrite] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def merge(self, writes: Iterable[RowWrite], rejects: Iterable[Reject]) -> None:
        """Called once, with the rows of all tasks."""
        self.writes += writes
        self.rejects += rejects
        repeated = {key: count for key, count in Counter(write.key for write in self.writes).items() if count > 1}
        for key, count in repeated.items():
            self.rejects += [repeated_key(key, count)] * count
        self.writes = [write for write in self.writes if write.key not in repeated]


def fits(rows: int, size_bytes: int, limits: Limits) -> bool:
    """Whether rows and rejects are published in one transaction, which also writes the record of the query."""
    return rows <= limits.txn_operations_max - 1 and size_bytes <= limits.request_bytes_max


def write_of(row: Mapping[str, Any], prefix: bytes, limits: Limits) -> RowWrite:
    """Raises ValueError with the reason."""
    key, op = _bytes(row["key"], "key"), row.get("op", PUT)
    if not key:
        raise ValueError("the key is null or empty")
    if len(key) > limits.key_bytes_max:
        raise ValueError(f"the key has {len(key)} bytes; the limit is {limits.key_bytes_max}")
    if not key.startswith(prefix):
        raise ValueError(f"the key does not begin with the prefix {key_text(prefix)!r}")
    if op == DELETE:
        return RowWrite(key, None)
    if op != PUT:
        raise ValueError(f"op is {op!r}; it must be put or delete")
    value = _bytes(row.get("value"), "value")
    if value is None:
        raise ValueError("the value is null")
    if len(value) > limits.value_bytes_max:
        raise ValueError(f"the value has {len(value)} bytes; the limit is {limits.value_bytes_max}")
    return RowWrite(key, value)


def reject_of(row: Mapping[str, Any], reason: str) -> Reject:
    key = row["key"]
    return Reject(key_text(key) if isinstance(key, bytes) else str(key)[:SHOWN_KEY], reason[:SHOWN_REASON])


def repeated_key(key: bytes, count: int) -> Reject:
    return Reject(key_text(key), f"the key occurs {count} times in one batch")


def refuse(count: int, first: Reject) -> RowsRejected:
    return RowsRejected(
        f"{counted(count, 'row')} cannot be written, the first is key {first.key!r}: {first.reason}; "
        "correct them, or give option rejectsPrefix"
    )


def check_columns(names: Iterable[str]) -> None:
    """Raises BadOption."""
    names = list(names)
    if "key" not in names or not set(names) <= set(COLUMNS) or not {"value", "op"} & set(names):
        raise BadOption(
            f"a DataFrame to write has the columns key, value and, if needed, op; this has {', '.join(names)}"
        )


def _bytes(value: Any, name: str) -> bytes | None:
    """Raises ValueError."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    if name == "value" and isinstance(value, dict):
        try:
            return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ValueError(f"the value is not JSON: {error}") from None
    raise ValueError(
        f"the {name} is of type {type(value).__name__}; give text, bytes{' or a struct' if name == 'value' else ''}"
    )
