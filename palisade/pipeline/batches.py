"""Pages of rows as Arrow batches. Pure.

A value that is not JSON of the given schema is null, and its bytes are in the column `rejected` (permissive), or it
raises BadValue (failfast).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa

from palisade.pipeline.errors import BadValue
from palisade.pipeline.page_columns import RowColumns, change_columns, row_columns
from palisade.pipeline.vault_rows import VaultRows

OPS = "put", "delete"
SNAPSHOT, RESET = "snapshot", "reset"
"""Of a stream whose changes were compacted: a row of the state, and the one row that announces the state."""
SHOWN = 60


Column = Callable[[], pa.Array]
"""Makes a column if the read has it."""


@dataclass(frozen=True, slots=True)
class Columns:
    """The Arrow schema of a read, and how values are decoded. Only columns of the schema are made."""

    schema: pa.Schema
    value_type: str
    failfast: bool

    def of_rows(self, page: bytes | VaultRows) -> pa.RecordBatch:
        """Columns key, value, revision, create_revision, version, lease; `rejected` with JSON. Raises BadPage."""
        rows = self._rows(page)
        return self._batch(len(rows), self._of(rows))

    def of_changes(self, page: bytes) -> pa.RecordBatch:
        """Also timestamp, op and previous_value. Of a delete, value is null and version and create_revision are 0.
        Raises BadPage."""
        changes = change_columns(page)
        rows = changes.rows
        found: dict[str, Column] = self._of(rows) | {
            "timestamp": lambda: pa.array(changes.wall_ms * 1000, pa.timestamp("us", "UTC")),
            "op": lambda: pa.array(OPS).take(pa.array((rows.versions == 0).astype("int8"))),
            "previous_value": lambda: self._values("previous_value", changes.previous, rows, failfast=False)[0],
            "sub": lambda: pa.array(changes.subs),
        }
        return self._batch(len(rows), found)

    def of_snapshot(self, page: bytes | VaultRows) -> pa.RecordBatch:
        """`of_changes` for rows of a state: timestamp, previous_value and sub are null. Raises BadPage."""
        rows = self._rows(page)
        return self._batch(len(rows), self._of(rows) | {"op": lambda: pa.array([SNAPSHOT] * len(rows), pa.string())})

    def of_reset(self, revision: int) -> pa.RecordBatch:
        """The row that announces the state at `revision`. All other columns are null."""
        found = {"revision": lambda: pa.array([revision], pa.int64()), "op": lambda: pa.array([RESET])}
        return self._batch(1, found)

    def _rows(self, page: bytes | VaultRows) -> RowColumns:
        if isinstance(page, bytes):
            return row_columns(page)
        return page.columns()

    def _of(self, rows: RowColumns) -> dict[str, Column]:
        values = cache(lambda: self._values("value", rows.values, rows))
        return {
            "key": lambda: self._typed("key", rows.keys, rows),
            "value": lambda: values()[0],
            "rejected": lambda: values()[1],
            "revision": lambda: pa.array(rows.mod_revisions),
            "create_revision": lambda: pa.array(rows.create_revisions),
            "version": lambda: pa.array(rows.versions),
            "lease": lambda: pa.array(rows.leases),
        }

    def _batch(self, rows: int, found: Mapping[str, Column]) -> pa.RecordBatch:
        """Columns that are not in `found` are null."""
        columns = [found[field.name]() if field.name in found else pa.nulls(rows, field.type) for field in self.schema]
        return pa.record_batch(columns, schema=self.schema)

    def _values(
        self, name: str, stored: pa.Array, rows: RowColumns, *, failfast: bool | None = None
    ) -> tuple[pa.Array, pa.Array]:
        """The values, and the bytes of those that do not match the schema."""
        if self.value_type != "json":
            return self._typed(name, stored, rows), pa.nulls(len(stored), pa.binary())
        kind, values = self.schema.field(name).type, stored.to_pylist()
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
                f"value of key {rows.keys[number].as_py()!r} does not match valueSchema: {bad[number][:SHOWN]!r}; "
                "correct it, or read with mode=permissive"
            )
        return column, pa.array([bad.get(number) for number in range(len(values))], pa.binary())

    def _typed(self, name: str, values: pa.Array, rows: RowColumns) -> pa.Array:
        if not pa.types.is_string(self.schema.field(name).type):
            return values
        try:
            text = values.cast(pa.string())
            text.validate(full=True)
        except pa.ArrowInvalid:
            number = next(n for n, each in enumerate(values.to_pylist()) if each is not None and not _is_text(each))
            option = "keyType" if name == "key" else "valueType"
            raise BadValue(
                f"the {name} of {rows.keys[number].as_py()!r} is not UTF-8: read with {option}=binary"
            ) from None
        return text


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
