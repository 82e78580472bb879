"""Publishes a batch that is larger than one transaction, in the driver. Its rows stay in the store: the driver reads
hashes of their keys, and rows only to reject those with repeated keys.

`batch_steps.py` has the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

from palisade.base.errors import PalisadeError
from palisade.client.sync_client import SyncClient
from palisade.metastore.limits import Limits
from palisade.metastore.requests import prefix_end
from palisade.metastore.staged_rows import Row, pack_chunk, rows_of_chunk
from palisade.pipeline.batch_run import run_steps
from palisade.pipeline.batch_steps import (
    HASHES,
    ROWS,
    STAGES,
    TRIES,
    Contended,
    Draft,
    PrefixChanged,
    StageLost,
    alive_key,
    chunk_key,
    discard,
    finish_overlapping,
    open_batch,
    stage_prefix,
    sweep,
    unused,
)
from palisade.pipeline.key_runs import KeyRuns, hash_of, merged, repeated, runs, without
from palisade.pipeline.options import WriteTarget
from palisade.pipeline.query_record import BatchName
from palisade.pipeline.sink_rows import BatchTooLarge, RowsRejected, refuse, repeated_key
from palisade.pipeline.staging import Staged, StagedPart, StageWriter, lease_of, page_of
from palisade.pipeline.task_rows import StageName, TaskRows, stage_all
from palisade.wire.batch_records import ATTEMPTS_MAX, BATCHES, KeySpan

REPEATED_KEYS_MAX = 100_000
"""Maximum number of repeated keys in a batch, whose hashes the driver holds."""
KEYS_PER_READ = 5_000


@dataclass(frozen=True, slots=True)
class LargeBatch:
    client: SyncClient
    target: WriteTarget
    limits: Limits
    stage: StageName
    name: BatchName | None
    record_key: bytes

    def publish(self, parts: Sequence[TaskRows]) -> int | None:
        """The revision of its manifest, once all rows are at their keys; None if the batch was published before.

        Raises BatchTooLarge, RowsRejected, StageLost, Contended: nothing was written. After any other error the batch
        is published as a whole or not at all.
        """
        spans = spans_of(self.target)
        with StageWriter(self.client, self.stage.name, self.target.stage_ms) as stage:
            staged = self._staged(stage, parts)
            repeated_hashes = set(islice(repeated(self._hashes(staged)), REPEATED_KEYS_MAX + 1))
            if repeated_hashes:
                staged.append(self._reject_repeated(stage, staged, repeated_hashes))
            revision = self._open(stage, staged, repeated_hashes, spans)
        run_steps(self.client, finish_overlapping(spans))
        if revision is None:
            abandon(self.client, self.stage.name)
        with suppress(PalisadeError):
            self.client.lease_revoke(lease_of(self.stage.name))
        run_steps(self.client, sweep(int(self.client.status()["minimal_revision"])))
        return revision

    def _staged(self, stage: StageWriter, parts: Sequence[TaskRows]) -> list[Staged]:
        """Everything that belongs to the batch, also what tasks have kept."""
        found = [part.staged for part in parts if part.staged is not None]
        if any(each.alive != stage.alive for each in found):
            raise StageLost(
                f"rows of batch {stage.name} expired while other tasks ran; nothing was written: give a longer option "
                "stageMs"
            )
        own = StagedPart(stage, "driver", self.stage.rejects)
        for part in parts:
            if part.staged is None:
                stage_all(own, part, self.limits)
                if part.rejected and not self.target.rejects and part.first_reject:
                    raise refuse(part.rejected, part.first_reject)
        found.append(own.finish())
        if len(found) > ATTEMPTS_MAX:
            raise BatchTooLarge(f"the batch has rows of {len(found)} tasks; the limit is {ATTEMPTS_MAX}: coalesce it")
        return found

    def _hashes(self, staged: Sequence[Staged]) -> Iterator[bytes]:
        return merged(run for each in staged for run in runs(each.pages, self._page(HASHES, each.attempt)))

    def _page(self, kind: bytes, attempt: str) -> partial[bytes]:
        return partial(page_of, self.client, self.stage.name, kind, attempt)

    def _reject_repeated(self, stage: StageWriter, staged: Sequence[Staged], hashes: set[bytes]) -> Staged:
        """Move the rows with repeated keys to the rejects."""
        if len(hashes) > REPEATED_KEYS_MAX:
            raise RowsRejected(f"more than {REPEATED_KEYS_MAX} keys occur several times: correct the batch")
        counts: dict[bytes, int] = {}
        for each in staged:
            for number in range(each.chunks):
                rows = rows_of_chunk(self._page(ROWS, each.attempt)(number))
                rest = [row for row in rows if hash_of(row[0]) not in hashes]
                for key, _ in rows:
                    if hash_of(key) in hashes:
                        counts[key] = counts.get(key, 0) + 1
                if len(rest) < len(rows) and self.target.rejects:
                    self._replace(chunk_key(self.stage.name, ROWS, each.attempt, number), rest)
        if not self.target.rejects:
            key, count = min(counts.items())
            raise refuse(sum(counts.values()), repeated_key(key, count))
        part = StagedPart(stage, "driver-repeated", self.stage.rejects)
        for key, count in counts.items():
            for _ in range(count):
                part.reject(repeated_key(key, count))
        return part.finish()

    def _replace(self, chunk: bytes, rows: list[Row]) -> None:
        if rows:
            self.client.put(chunk, pack_chunk(rows))
        else:
            self.client.delete(chunk)

    def _open(
        self, stage: StageWriter, staged: list[Staged], rejected: set[bytes], spans: tuple[KeySpan, ...]
    ) -> int | None:
        """`rejected`: hashes of keys that the batch does not write."""
        for number in range(TRIES):
            attempts, since = [each.attempt for each in staged], 0
            if self.target.overwrite:
                run_steps(self.client, finish_overlapping(spans))
                since, deletes = self._stage_deletes(stage, staged, rejected, f"driver-deletes{number}")
                attempts.append(deletes.attempt)
            draft = Draft(self.stage.name, stage.alive, spans, tuple(attempts), self.name, self.record_key, since)
            try:
                revision: int | None = run_steps(self.client, open_batch(draft))
            except PrefixChanged:
                continue
            return revision
        raise Contended(f"other writers changed the keys {TRIES} times; nothing was written: try again")

    def _stage_deletes(
        self, stage: StageWriter, staged: Sequence[Staged], rejected: set[bytes], attempt: str
    ) -> tuple[int, Staged]:
        """Stages a delete for each key of the prefix that the batch does not have. Also returns the revision at which
        the keys were read."""
        present = KeyRuns(partial(stage.put, HASHES, f"{attempt}-present"))
        key, end, revision = *spans_of(self.target)[0], 0
        while True:
            page = self.client.range(
                key, end, keys_only=True, limit=KEYS_PER_READ, revision=revision, exact_count=False
            )
            revision = revision or page.revision
            for each in page.kvs:
                present.add(hash_of(each.key) + each.key)
            if len(page.kvs) < KEYS_PER_READ:
                break
            key = page.kvs[-1].key + b"\0"
        present.flush()
        stage.flush()
        part = StagedPart(stage, attempt, b"")
        old = merged(runs(present.pages, self._page(HASHES, f"{attempt}-present")))
        written = (each for each in self._hashes(staged) if each not in rejected)
        for gone in without(old, written):
            part.delete(gone)
        return revision, part.finish()


def spans_of(target: WriteTarget) -> tuple[KeySpan, ...]:
    """Of the rows, and of the rejects. Raises BatchTooLarge if the target does not permit a large batch."""
    if not target.prefix:
        raise BatchTooLarge(
            "a batch above one transaction (1,023 rows, 2 MiB) needs option prefix: it names the keys that readers see "
            "all at once"
        )
    found = [KeySpan(prefix, prefix_end(prefix)) for prefix in (target.prefix, target.rejects.encode()) if prefix]
    for reserved in (STAGES, BATCHES):
        if any(each.overlaps(KeySpan(reserved, prefix_end(reserved))) for each in found):
            raise BatchTooLarge(f"a batch above one transaction cannot write keys below {reserved.decode()}")
    if len(found) == 2 and found[0].overlaps(found[1]):
        raise BatchTooLarge("options prefix and rejectsPrefix overlap: choose separate prefixes")
    return tuple(found)


def abandon(client: SyncClient, name: str) -> None:
    """Removes a stage that was not published. If a transaction without an answer has published it, it stays. What
    remains after an error is swept later."""
    with suppress(PalisadeError):
        client.delete(alive_key(name))
        run_steps(client, discard(stage_prefix(name), unused(name)))
        client.lease_revoke(lease_of(name))
