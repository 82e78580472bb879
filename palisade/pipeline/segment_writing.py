"""Writes the rows of one interval as segments, in a task of Spark. Does not import pyspark, for tests without it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from palisade.catalog.parquet_rows import inspect_table, parquet_of
from palisade.catalog.segment import time_text
from palisade.pipeline.ingest_rows import REASON, ROW
from palisade.pipeline.segment_folder import PARQUET, REJECTS, write_file

RESULT = (
    "start_ms BIGINT, partition BIGINT, core_partitions BIGINT, rows BIGINT, size_bytes BIGINT, "
    "digest STRING, url STRING"
)
DIGEST_CHARACTERS = 16
"""Of the digest, in the name of a file: enough to distinguish attempts, whose rows are the same."""


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """`start_ms` None: a file of rejected rows."""

    start_ms: int | None
    partition: int
    core_partitions: int
    rows: int
    size_bytes: int
    digest: str
    url: str


@dataclass(frozen=True, slots=True)
class SegmentWriter:
    """`write` gets all rows of one interval. Spark may repeat it with the same rows in another order, so it sorts them:
    then every attempt divides them into the same partitions. `order`: the columns to sort by."""

    folder: str
    order: tuple[str, ...]
    columns: tuple[str, ...]
    rows_max: int

    def write(self, key: tuple[Any, ...], table: pa.Table) -> pa.Table:
        start_ms, part = (each.as_py() for each in key)
        found = [self._rejects(part, table)] if start_ms is None else self._segments(start_ms, table)
        return pa.Table.from_pylist([as_row(each) for each in found], SCHEMA)

    def _segments(self, start_ms: int, table: pa.Table) -> list[WrittenFile]:
        rows = table.select(self.columns).sort_by([(name, "ascending") for name in self.order])
        count = -(-rows.num_rows // self.rows_max)
        length = -(-rows.num_rows // count)
        parts = [rows.slice(number * length, length) for number in range(count)]
        return [self._segment(start_ms, number, count, part) for number, part in enumerate(parts)]

    def _segment(self, start_ms: int, number: int, count: int, rows: pa.Table) -> WrittenFile:
        content = inspect_table(rows)
        digest = content.digest.rpartition(":")[2][:DIGEST_CHARACTERS]
        name = f"{time_text(start_ms).replace(':', '')}-{number:05}-{digest}{PARQUET}"
        url = write_file(Path(self.folder), name, parquet_of(rows))
        return WrittenFile(start_ms, number, count, content.rows, content.size_bytes, content.digest, url)

    def _rejects(self, part: int, table: pa.Table) -> WrittenFile:
        """One JSON object a line: the reason, and the row as it is in the input."""
        rows = sorted(zip(table[REASON].to_pylist(), table[ROW].to_pylist(), strict=True))
        lines = "".join(json.dumps({"reason": reason, "row": row}, ensure_ascii=False) + "\n" for reason, row in rows)
        url = write_file(Path(self.folder), f"{REJECTS}{part:05}.jsonl", lines.encode())
        return WrittenFile(None, part, 0, table.num_rows, 0, "", url)


SCHEMA = pa.schema(
    [
        ("start_ms", pa.int64()),
        ("partition", pa.int64()),
        ("core_partitions", pa.int64()),
        ("rows", pa.int64()),
        ("size_bytes", pa.int64()),
        ("digest", pa.string()),
        ("url", pa.string()),
    ]
)


def as_row(file: WrittenFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in SCHEMA.names}
