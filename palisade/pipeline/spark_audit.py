"""The tables of an audit, in Spark: recorded files become rows of acts, which are checked per key in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa

from palisade.pipeline.audit.acts import Axis, OperationRow, acts_of, acts_of_commit, committed, row_of, row_of_note
from palisade.pipeline.audit.findings import Finding
from palisade.pipeline.audit.key_history import Act, Scope, check_key
from palisade.pipeline.worker_memory import freeze_modules
from palisade.wire.recorded_effects import digest_of
from palisade.wire.recorded_history import Commit, Entry, Note, Recorded, RecordingHeader, entries_of

ROWS = 20_000
"""Of one Arrow batch."""
ACTS = pa.schema(
    [("key", pa.binary()), ("what", pa.string()), ("invoked_ns", pa.int64()), ("completed_ns", pa.int64()),
     ("wall_ms", pa.int64()), ("operation", pa.string()), ("revision", pa.int64()), ("mod_revision", pa.int64()),
     ("create_revision", pa.int64()), ("version", pa.int64()), ("digest", pa.int64()), ("delete", pa.bool_()),
     ("ordered", pa.bool_())]
)  # fmt: skip
OPERATIONS = pa.schema(
    [("operation", pa.string()), ("client", pa.string()), ("kind", pa.string()), ("promise", pa.string()),
     ("outcome", pa.string()), ("error", pa.string()), ("invoked_ns", pa.int64()), ("completed_ns", pa.int64()),
     ("wall_ms", pa.int64()), ("revision", pa.int64()), ("writes", pa.bool_()), ("made", pa.bool_()),
     ("ordered", pa.bool_()), ("ok", pa.bool_()), ("ranges", pa.bool_())]
)  # fmt: skip
FINDINGS = pa.schema(
    [("kind", pa.string()), ("subject", pa.binary()), ("revision", pa.int64()), ("operation", pa.string()),
     ("wall_ms", pa.int64()), ("text", pa.string())]
)  # fmt: skip
Batches = Iterable[pa.RecordBatch]


def entries_at(path: str) -> Iterator[Entry]:
    with Path(path).open("rb") as file:
        yield from entries_of(file, path)


def batches_of(rows: Iterable[Sequence[Any]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    freeze_modules()
    iterator = iter(rows)
    while part := list(islice(iterator, ROWS)):
        columns = zip(*part, strict=True)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
        yield pa.record_batch(arrays, schema=schema)


def _paths(batches: Batches) -> Iterator[str]:
    for batch in batches:
        yield from batch.column(0).to_pylist()


def reads_operations(axis: Axis) -> Callable[[Batches], Batches]:
    def rows(batches: Batches) -> Iterator[OperationRow]:
        for path in _paths(batches):
            header: RecordingHeader | None = None
            for entry in entries_at(path):
                if isinstance(entry, RecordingHeader):
                    header = entry
                elif isinstance(entry, Recorded) and header is not None:
                    yield row_of(header, entry, axis)
                elif isinstance(entry, Note):
                    yield row_of_note(path, entry)

    return lambda batches: batches_of(rows(batches), OPERATIONS)


def reads_acts(axis: Axis, keys: Sequence[bytes]) -> Callable[[Batches], Batches]:
    def rows(batches: Batches) -> Iterator[Act]:
        for path in _paths(batches):
            header: RecordingHeader | None = None
            for entry in entries_at(path):
                if isinstance(entry, RecordingHeader):
                    header = entry
                elif isinstance(entry, Commit):
                    yield from acts_of_commit(entry)
                elif isinstance(entry, Recorded) and header is not None:
                    yield from acts_of(header, entry, axis, keys)

    return lambda batches: batches_of(rows(batches), ACTS)


def changes_as_acts(batches: Batches) -> Batches:
    """Of a change feed with the columns key, value, revision, op."""

    def rows() -> Iterator[Act]:
        for batch in batches:
            for key, value, revision, op in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield committed(key, revision, None if op == "delete" else digest_of(value))

    return batches_of(rows(), ACTS)


def checks_keys(scope: Scope) -> Callable[[Batches], Batches]:
    """Of acts sorted by key; all acts of a key are in one partition."""

    def rows(batches: Batches) -> Iterator[Finding]:
        acts = (
            Act._make(each)
            for batch in batches
            for each in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        )
        for _, of_key in groupby(acts, itemgetter(0)):
            yield from check_key(list(of_key), scope)

    return lambda batches: batches_of(rows(batches), FINDINGS)


def ddl(schema: pa.Schema) -> str:
    """The schema as Spark reads it."""
    names = {pa.binary(): "BINARY", pa.string(): "STRING", pa.int64(): "BIGINT", pa.bool_(): "BOOLEAN"}
    return ", ".join(f"{field.name} {names[field.type]}" for field in schema)
