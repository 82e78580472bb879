"""Partitions of a read, and their rows as Arrow batches: shared by scans and streams."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from palisade.pipeline.batches import Columns
from palisade.pipeline.cluster import Pinned, pages
from palisade.pipeline.options import ReadOptions
from palisade.pipeline.partitions import ReadPart
from palisade.pipeline.worker_memory import freeze_modules


class PartOfRead(InputPartition):
    """`snapshot`: rows of a state that stand for changes."""

    def __init__(self, part: ReadPart, pinned: Pinned, snapshot: bool = False) -> None:
        self.part, self.pinned, self.snapshot = part, pinned, snapshot


class ResetOfSnapshot(InputPartition):
    """The row that announces the state in every snapshot of a stream."""

    def __init__(self, revision: int) -> None:
        self.revision = revision


def batches_of(options: ReadOptions, partition: Any, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    freeze_modules()
    columns = Columns(schema, options.format.value_type, options.format.failfast)
    if isinstance(partition, ResetOfSnapshot):
        yield columns.of_reset(partition.revision)
        return
    convert: Callable[[Any], pa.RecordBatch] = columns.of_changes if partition.part.first else columns.of_rows
    if partition.snapshot:
        convert = columns.of_snapshot
    yield from (convert(page) for page in pages(options, partition.pinned, partition.part) if page)
