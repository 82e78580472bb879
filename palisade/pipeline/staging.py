"""Stages rows of a batch in the store, in chunks below `pipeline/stages/NAME/`.

All tasks of a batch share one *alive* key, attached to a lease that each task renews as long as it stages. If it
expires, the key vanishes, and a sweeper removes the chunks. A task reports the create revision of the key it saw, and
the publication compares it: chunks that were removed meanwhile are never published. Chunks have no lease of their own,
because they must outlive the publication until they are copied.

A few threads put values in advance; `PUTS_AHEAD` chunks bound the memory.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from types import TracebackType
from typing import Any

from palisade.base.errors import PalisadeError
from palisade.client.operations import Compare, Get, Put
from palisade.client.sync_client import SyncClient
from palisade.metastore.errors import LeaseExists, LeaseNotFound
from palisade.metastore.limits import Limits
from palisade.metastore.staged_rows import Row, pack_chunk
from palisade.pipeline.batch_steps import HASHES, REJECTS, ROWS, StageLost, alive_key, chunk_key
from palisade.pipeline.key_runs import KeyRuns, hash_of
from palisade.pipeline.sink_rows import Reject, RowWrite

ROWS_PER_CHUNK = 500
BYTES_PER_CHUNK = 256 * 1024
"""A node applies a chunk in one turn, about 10 ms."""
PUTS_AHEAD = 4
RENEWALS = 3
ROW_EXTRA_BYTES = 32


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged rows of one attempt of a task. `alive`: the create revision of the alive key; `chunks`, `rejects`:
    numbers of chunks; `pages`: of hashes."""

    attempt: str
    alive: int
    chunks: int
    rejects: int
    pages: int


class StageWriter:
    """The connection of one process to the stage of a batch. Use it with `with`."""

    def __init__(self, client: SyncClient, name: str, ttl_ms: int) -> None:
        self.name = name
        self._client, self._ttl_s = client, ttl_ms / 1000
        self._lease = lease_of(name)
        self.alive = self._begin()
        self._pool = ThreadPoolExecutor(PUTS_AHEAD)
        self._waiting: deque[Future[Any]] = deque()
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="stage renewal", daemon=True)
        self._renewal.start()

    def __enter__(self) -> StageWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._pool.shutdown(cancel_futures=True)
        self._renewal.join()

    def put(self, kind: bytes, attempt: str, number: int, value: bytes) -> None:
        """Raises the error of an earlier put."""
        while len(self._waiting) >= PUTS_AHEAD:
            self._waiting.popleft().result()
        key = chunk_key(self.name, kind, attempt, number)
        self._waiting.append(self._pool.submit(self._client.put, key, value))

    def flush(self) -> None:
        """Wait until everything is stored."""
        while self._waiting:
            self._waiting.popleft().result()

    def _begin(self) -> int:
        """Renew the lease, and create the alive key if there is none; its create revision."""
        key = alive_key(self.name)
        while True:
            try:
                self._grant()
                done = self._client.txn([Compare.absent(key)], [Put(key, lease=self._lease)], [Get(key)])
            except LeaseNotFound:
                continue
            if done.succeeded:
                return done.revision
            found: Any = done.results[0]
            return int(found.kvs[0].create_revision)

    def _grant(self) -> None:
        try:
            self._client.lease_grant(self._ttl_s, self._lease)
        except LeaseExists:
            self._client.lease_keep_alive(self._lease)

    def _renew(self) -> None:
        """Repeats a failed renewal. An expired lease is not granted again; the publication detects it."""
        while not self._ended.wait(self._ttl_s / RENEWALS):
            try:
                self._client.lease_keep_alive(self._lease)
            except LeaseNotFound:
                return
            except PalisadeError:
                continue


class Chunks:
    """Collects rows of one kind, and stages a chunk when it is full."""

    def __init__(self, stage: StageWriter, kind: bytes, attempt: str) -> None:
        self._stage, self._kind, self._attempt = stage, kind, attempt
        self._rows: list[Row] = []
        self._size = 0
        self.count = 0

    def add(self, key: bytes, value: bytes | None) -> None:
        size = len(key) + len(value or b"") + ROW_EXTRA_BYTES
        if len(self._rows) >= ROWS_PER_CHUNK or self._size + size > BYTES_PER_CHUNK:
            self.flush()
        self._rows.append((key, value))
        self._size += size

    def flush(self) -> None:
        if self._rows:
            self._stage.put(self._kind, self._attempt, self.count, pack_chunk(self._rows))
            self.count += 1
            self._rows, self._size = [], 0


class StagedPart:
    """The rows of one attempt. `rejects`: the prefix of the keys of its rejected rows."""

    def __init__(self, stage: StageWriter, attempt: str, rejects: bytes) -> None:
        self._stage, self._attempt, self._reject_prefix = stage, attempt, rejects + attempt.encode() + b"-"
        self._rows, self._rejects = Chunks(stage, ROWS, attempt), Chunks(stage, REJECTS, attempt)
        self._hashes = KeyRuns(partial(stage.put, HASHES, attempt))
        self._rejected = 0

    def add(self, write: RowWrite) -> None:
        self._rows.add(write.key, write.value)
        self._hashes.add(hash_of(write.key))

    def delete(self, key: bytes) -> None:
        """Of a key that no row of the batch has."""
        self._rows.add(key, None)

    def reject(self, reject: Reject) -> None:
        self._rejects.add(self._reject_prefix + b"%06d" % self._rejected, reject.value)
        self._rejected += 1

    def finish(self) -> Staged:
        for part in (self._rows, self._rejects, self._hashes):
            part.flush()
        self._stage.flush()
        return Staged(self._attempt, self._stage.alive, self._rows.count, self._rejects.count, self._hashes.pages)


def staged_row_max(limits: Limits) -> int:
    """Key and value of a staged row: its chunk is one value."""
    return limits.value_bytes_max - ROW_EXTRA_BYTES


def lease_of(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) >> 1 or 1


def page_of(client: SyncClient, name: str, kind: bytes, attempt: str, number: int) -> bytes:
    """Raises StageLost."""
    found = client.get(chunk_key(name, kind, attempt, number))
    if found is None:
        raise StageLost(f"staged rows of batch {name} have expired; nothing was written: run it again")
    return found.value
