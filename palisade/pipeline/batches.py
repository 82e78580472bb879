"""Pages of rows as Arrow batches. Pure.

A value that is not JSON of the given schema is null, and its bytes are in the column `rejected` (permissive), or it
raises BadValue (failfast).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from palisade.pipeline.errors import BadValue
from palisade.wire.scan_pages import ScannedChange, ScannedRow

PUT, DELETE = "put", "delete"
SHOWN = 60


@dataclass(frozen=True, slots=True)
class Columns:
    """The Arrow schema of a read, and how values are decoded."""

    schema: pa.Schema
    value_type: str
    failfast: bool

    def of_rows(self, rows: Iterable[ScannedRow]) -> pa.RecordBatch:
        """Columns key, value, revision, create_revision, version, lease; `rejected` with JSON."""
        keys, values, revisions, created, versions, leases = _transposed(rows)
        found = {
            "key": self._keys(keys),
            **self._values("value", values, keys),
            "revision": pa.array(revisions, pa.int64()),
            "create_revision": pa.array(created, pa.int64()),
            "version": pa.array(versions, pa.int64()),
            "lease": pa.array(leases, pa.int64()),
        }
        return pa.record_batch([found[name] for name in self.schema.names], schema=self.schema)

    def of_changes(self, changes: Sequence[ScannedChange]) -> pa.RecordBatch:
        """Also timestamp, op and previous_value. Of a delete, value is null and version and create_revision are 0."""
        rows = [change.row for change in changes]
        keys, _, revisions, created, versions, leases = _transposed(rows)
        previous = [None if change.previous is None else change.previous.value for change in changes]
        found = {
            "key": self._keys(keys),
            **self._values("value", [row.value if row.version else None for row in rows], keys),
            "revision": pa.array(revisions, pa.int64()),
            "create_revision": pa.array(created, pa.int64()),
            "version": pa.array(versions, pa.int64()),
            "lease": pa.array(leases, pa.int64()),
            "timestamp": pa.array([change.wall_ms * 1000 for change in changes], pa.timestamp("us", "UTC")),
            "op": pa.array([PUT if row.version else DELETE for row in rows], pa.string()),
            "previous_value": self._values("value", previous, keys, failfast=False)["value"],
            "sub": pa.array([change.sub for change in changes], pa.int64()),
        }
        return pa.record_batch([found[name] for name in self.schema.names], schema=self.schema)

    def _keys(self, keys: Sequence[bytes]) -> pa.Array:
        return self._typed("key", keys, keys)

    def _values(
        self, name: str, values: Sequence[bytes | None], keys: Sequence[bytes], *, failfast: bool | None = None
    ) -> dict[str, pa.Array]:
        if self.value_type != "json":
            return {name: self._typed(name, values, keys)}
        kind = self.schema.field(name).type
        objects, bad = list[Any](), dict[int, bytes]()
        for number, value in enumerate(values):
            try:
                objects.append(None if value is None else _object(value))
            except ValueError:
                objects.append(None)
                bad[number] = value or b""
        column = _column(objects, kind)
        if column is None:
            for number, each in enumerate(objects):
                if each is not None and _column([each], kind) is None:
                    objects[number], bad[number] = None, values[number] or b""
            column = pa.array(objects, kind)
        if bad and (self.failfast if failfast is None else failfast):
            number = min(bad)
            raise BadValue(
                f"value of key {keys[number]!r} does not match valueSchema: {bad[number][:SHOWN]!r}; "
                "correct it, or read with mode=permissive"
            )
        return {name: column, "rejected": pa.array([bad.get(number) for number in range(len(values))], pa.binary())}

    def _typed(self, name: str, values: Sequence[bytes | None], keys: Sequence[bytes]) -> pa.Array:
        found = pa.array(values, pa.binary())
        if not pa.types.is_string(self.schema.field(name).type):
            return found
        try:
            text = found.cast(pa.string())
            text.validate(full=True)
        except pa.ArrowInvalid:
            number = next(n for n, each in enumerate(values) if each is not None and not _is_text(each))
            raise BadValue(f"the {name} of {keys[number]!r} is not UTF-8: read with {name}Type=binary") from None
        return text


def _transposed(rows: Iterable[ScannedRow]) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True)) or [()] * 6


def _object(value: bytes) -> Any:
    """Raises ValueError, also for values that are JSON but not an object."""
    found = json.loads(value)
    if found is not None and type(found) is not dict:
        raise ValueError
    return found


def _column(objects: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """None if one of them does not fit."""
    try:
        return pa.array(objects, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return None


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
