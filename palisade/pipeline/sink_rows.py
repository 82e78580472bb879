"""Rows of a DataFrame as operations of one transaction; rows that cannot be written, with the reason. Pure.

A duplicate key is rejected with all its rows, because the rows of a DataFrame have no order.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palisade.base.key_text import key_text
from palisade.metastore.limits import Limits
from palisade.pipeline.errors import BadOption, PipelineError

PUT, DELETE = "put", "delete"
COLUMNS = ("key", "value", "op")
OVERHEAD_BYTES = 64
"""Of an operation in its transaction, besides key and value."""


class BatchTooLarge(PipelineError):
    """The rows do not fit into one transaction."""


class RowsRejected(PipelineError):
    """The batch has rows that cannot be written, and no rejects were requested."""


@dataclass(frozen=True, slots=True)
class Write:
    """`value` None: a delete."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Reject:
    key: str
    reason: str


@dataclass(slots=True)
class Rows:
    """What one task, or all of them, have for the transaction."""

    prefix: bytes
    limits: Limits
    writes: list[Write] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    bytes: int = 0

    def add(self, row: Mapping[str, Any]) -> None:
        """Raises BatchTooLarge."""
        try:
            self._count(self._write_of(row))
        except ValueError as error:
            key = row["key"]
            self.rejects.append(Reject(key_text(key) if isinstance(key, bytes) else str(key)[:200], str(error)))
            self._check()

    def merge(self, others: Iterable[Rows]) -> None:
        """Raises BatchTooLarge."""
        for other in others:
            self.rejects += other.rejects
            for write in other.writes:
                self._count(write)
        repeated = {key: count for key, count in Counter(write.key for write in self.writes).items() if count > 1}
        for key, count in repeated.items():
            self.rejects += [Reject(key_text(key), f"the key occurs {count} times in one batch")] * count
        self.writes = [write for write in self.writes if write.key not in repeated]

    def _write_of(self, row: Mapping[str, Any]) -> Write:
        """Raises ValueError with the reason."""
        key, op = _bytes(row["key"], "key"), row.get("op", PUT)
        if not key:
            raise ValueError("the key is null or empty")
        if len(key) > self.limits.key_bytes_max:
            raise ValueError(f"the key has {len(key)} bytes; the limit is {self.limits.key_bytes_max}")
        if not key.startswith(self.prefix):
            raise ValueError(f"the key does not begin with the prefix {key_text(self.prefix)!r}")
        if op == DELETE:
            return Write(key, None)
        if op != PUT:
            raise ValueError(f"op is {op!r}; it must be put or delete")
        value = _bytes(row.get("value"), "value")
        if value is None:
            raise ValueError("the value is null")
        if len(value) > self.limits.value_bytes_max:
            raise ValueError(f"the value has {len(value)} bytes; the limit is {self.limits.value_bytes_max}")
        return Write(key, value)

    def _count(self, write: Write) -> None:
        self.writes.append(write)
        self.bytes += len(write.key) + len(write.value or b"") + OVERHEAD_BYTES
        self._check()

    def _check(self) -> None:
        count = len(self.writes) + len(self.rejects)
        if count > self.limits.txn_operations_max - 1 or self.bytes > self.limits.request_bytes_max:
            raise BatchTooLarge(
                f"the batch has {count} rows or more and {self.bytes} bytes; one transaction takes "
                f"{self.limits.txn_operations_max - 1} rows and {self.limits.request_bytes_max} bytes: write smaller "
                "batches (streams: maxRowsPerBatch), or load with palisade load"
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
