"""The rows of one task of a write: kept for the commit message while they are few, staged in the store otherwise.

The driver receives only the messages of the attempts that Spark commits. Thus the staged rows of a retried or
speculative attempt are never published, and are removed later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from palisade.client.sync_client import SyncClient
from palisade.metastore.limits import Limits
from palisade.pipeline.options import WriteTarget
from palisade.pipeline.sink_rows import Reject, RowWrite, reject_of, write_of
from palisade.pipeline.staging import Staged, StagedPart, StageWriter, staged_row_max

Connect = Callable[[], AbstractContextManager[SyncClient]]
KEPT_ROWS, KEPT_BYTES = 1_000, 256 * 1024
"""Of one task: the driver holds the messages of all of them."""


@dataclass(slots=True)
class TaskRows:
    """`writes` and `rejects` are empty if the rows are staged. `count`, `bytes`: of all rows that can be written;
    `rejected`, `first_reject`: of those that cannot."""

    writes: list[RowWrite] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    staged: Staged | None = None
    count: int = 0
    bytes: int = 0
    rejected: int = 0
    first_reject: Reject | None = None


@dataclass(frozen=True, slots=True)
class StageName:
    """Of a batch: its stage, and the prefix of the keys of its rejected rows."""

    name: str
    rejects: bytes


class Collector:
    """`connect` opens a client of the caller's; it is closed with the collector. Use it with `with`."""

    def __init__(
        self,
        target: WriteTarget,
        limits: Limits,
        connect: Connect,
        stage: StageName,
        attempt: str,
    ) -> None:
        self._target, self._limits, self._connect = target, limits, connect
        self._stage, self._attempt = stage, attempt
        self._opened = ExitStack()
        self._staged: StagedPart | None = None
        self._found = TaskRows()

    def add(self, row: Mapping[str, Any]) -> None:
        try:
            write = write_of(row, self._target.prefix, self._limits)
            if self._staged is not None:
                check_staged(write, self._limits)
        except ValueError as error:
            self._reject(reject_of(row, str(error)))
            return
        found = self._found
        found.count += 1
        found.bytes += write.size_bytes
        if self._staged is not None:
            self._staged.add(write)
            return
        found.writes.append(write)
        self._spill()

    def finish(self) -> TaskRows:
        if self._staged is not None:
            self._found.staged = self._staged.finish()
        return self._found

    def _reject(self, reject: Reject) -> None:
        found = self._found
        found.rejected += 1
        found.first_reject = found.first_reject or reject
        if not self._target.rejects:
            return  # one rejected row fails the batch
        found.bytes += reject.size_bytes
        if self._staged is not None:
            self._staged.reject(reject)
            return
        found.rejects.append(reject)
        self._spill()

    def _spill(self) -> None:
        """Stage the rows from now on, if there are too many for a message."""
        found = self._found
        if len(found.writes) + len(found.rejects) <= KEPT_ROWS and found.bytes <= KEPT_BYTES:
            return
        client = self._opened.enter_context(self._connect())
        stage = self._opened.enter_context(StageWriter(client, self._stage.name, self._target.stage_ms))
        self._staged = StagedPart(stage, self._attempt, self._stage.rejects)
        stage_all(self._staged, found, self._limits)
        found.writes, found.rejects = [], []

    def close(self) -> None:
        self._opened.close()


@contextmanager
def collecting(
    target: WriteTarget,
    limits: Limits,
    connect: Connect,
    stage: StageName,
    attempt: str,
) -> Iterator[Collector]:
    collector = Collector(target, limits, connect, stage, attempt)
    try:
        yield collector
    finally:
        collector.close()


def stage_all(part: StagedPart, rows: TaskRows, limits: Limits) -> None:
    """Stage the rows that were kept. Rows that fit one transaction but no chunk become rejects."""
    for write in rows.writes:
        try:
            check_staged(write, limits)
        except ValueError as error:
            rows.count -= 1
            rows.rejected += 1
            rows.rejects.append(reject_of({"key": write.key}, str(error)))
            rows.first_reject = rows.first_reject or rows.rejects[-1]
        else:
            part.add(write)
    for reject in rows.rejects:
        part.reject(reject)


def check_staged(write: RowWrite, limits: Limits) -> None:
    """Raises ValueError with the reason."""
    size = len(write.key) + len(write.value or b"")
    if size > staged_row_max(limits):
        raise ValueError(
            f"key and value have {size} bytes; in a batch above one transaction the limit is {staged_row_max(limits)}"
        )
