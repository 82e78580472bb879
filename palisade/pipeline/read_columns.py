"""The columns of a read of keys: the possible ones, and the chosen ones (option `columns`). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from palisade.pipeline.errors import BadOption
from palisade.pipeline.options import ReadOptions

STATE = ("key", "value", "revision", "create_revision", "version", "lease")
CHANGES = ("key", "value", "revision", "sub", *STATE[3:], "timestamp", "op", "previous_value")
VALUES = {"value", "previous_value", "rejected"}
TYPES = {"timestamp": "TIMESTAMP", "op": "STRING", "rejected": "BINARY"}
"""Types of Spark. Key and value have those of the options; all other columns are numbers."""


def schema_of(options: ReadOptions, *, stream: bool) -> str:
    """The Spark schema of a read, as DDL: `options.columns` in their order, or all.

    Raises BadOption. `rejected` has the values that do not become a `value`, and only `op` distinguishes a
    snapshot in a stream from changes, so neither is read without the other.
    """
    form = options.format
    value = f"STRUCT<{form.schema}>" if form.schema else form.value_type.upper()
    types = TYPES | {"key": form.key_type.upper(), "value": value, "previous_value": value}
    known = CHANGES if stream or options.history else STATE
    if form.schema and not form.failfast:
        known = (*known, "rejected")
    chosen = options.columns or known
    if unknown := [name for name in chosen if name not in known]:
        raise BadOption(f"option columns: this read has no column {unknown[0]!r}; it has {', '.join(known)}")
    if "rejected" in chosen and "value" not in chosen:
        raise BadOption("option columns: rejected has the values that are not JSON of valueSchema: add value")
    if stream and options.snapshots and "op" not in chosen:
        raise BadOption("option columns: with onCompacted=snapshot, op distinguishes a state from changes: add op")
    return ", ".join(f"{name} {types.get(name, 'BIGINT')}" for name in chosen)


def needs_values(columns: Sequence[str]) -> bool:
    """Whether a read of these columns (none: all) needs values of keys from the nodes."""
    return not columns or not VALUES.isdisjoint(columns)
