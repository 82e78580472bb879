"""Publication of a batch that is larger than one transaction, as requests that another module executes. Pure.

Tasks stage the rows in chunks (`staging.py`). The transaction of `open_batch` decides: it writes the manifest, at
revision r, if the stage still exists, the record of the query is the one that was read, and no batch of an overlapping
range has been opened meanwhile. From then on the batch takes effect at r, even if a process dies. `copy_batch` moves
the rows to their keys, chunk by chunk, and closes the batch. Any process may run it, also several concurrently: a chunk
is copied once, and a row never replaces a change made after r (`metastore.staged_rows`).

A reader outside of (r, c), where c is the closing revision, sees all rows or none. Up to r no row is copied. At c every
chunk of the batch was found and copied: only its copy removes a chunk of a listed attempt, because the sweeper skips
stages with a manifest, and no chunk is added, because the attempts had ended. Both transactions are in the same history
as all other changes, so every reader agrees on r and c.

A later delete of a key that is not copied yet would find nothing to delete. Thus publications with deletes finish
overlapping batches first, and compare that none was opened meanwhile (`closed_since`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from palisade.metastore.requests import (
    Compare,
    CompareResult,
    CompareTarget,
    CopyChunk,
    DeleteRange,
    Put,
    Range,
    Txn,
    prefix_end,
)
from palisade.metastore.results import RangeResult, TxnResult
from palisade.pipeline.errors import PipelineError
from palisade.pipeline.query_record import BatchName, QueryRecord
from palisade.wire.batch_records import CLOSED, OPEN, BadBatchRecord, BatchRecord, KeySpan

STAGES = b"pipeline/stages/"
ROWS, REJECTS, HASHES = b"rows", b"rejects", b"hashes"
CHUNKS_PER_PAGE = 256
DISCARDED_PER_TXN = 4
"""A staged value has up to 1 MiB, and a delete stores it once more in the history."""
TRIES = 5


class Contended(PipelineError):
    """Other writers changed the keys at each attempt: nothing was written."""

    retry = True


class StageLost(PipelineError):
    """The staged rows of the batch expired or were removed before the batch was published: nothing was written."""

    retry = True


class PrefixChanged(PipelineError):
    """Keys of the prefix that is overwritten were changed after they were read: nothing was written."""

    retry = True


@dataclass(frozen=True, slots=True)
class Together:
    """Executed in any order, also at once -> a list of results."""

    requests: tuple[CopyChunk, ...]


@dataclass(frozen=True, slots=True)
class HoldRevision:
    """Keep `revision` from being compacted for the batch, as far as the cluster permits."""

    name: str
    span: KeySpan
    revision: int


@dataclass(frozen=True, slots=True)
class ReleaseRevision:
    name: str
    span: KeySpan


Request = Range | Txn | Together | HoldRevision | ReleaseRevision
Steps = Generator[Request, Any, Any]


@dataclass(frozen=True, slots=True)
class Draft:
    """A staged batch. `alive`: the create revision of the key that its stage depends on. `spans`: of the rows, then of
    the rejects. `unchanged_since`: of an overwrite, the revision at which the keys of the first span were read."""

    name: str
    alive: int
    spans: tuple[KeySpan, ...]
    attempts: tuple[str, ...]
    query: BatchName | None = None
    record_key: bytes = b""
    unchanged_since: int = 0


def stage_prefix(name: str) -> bytes:
    return STAGES + name.encode() + b"/"


def alive_key(name: str) -> bytes:
    return stage_prefix(name) + b"alive"


def chunk_key(name: str, kind: bytes, attempt: str, number: int) -> bytes:
    return b"%s%s/%s/%08d" % (stage_prefix(name), kind, attempt.encode(), number)


def open_batch(draft: Draft) -> Generator[Request, Any, int | None]:
    """The revision r; None if the query's record shows that the batch was published before.

    Raises StageLost, PrefixChanged, Contended: nothing was written.
    """
    for _ in range(TRIES):
        read: int = yield from finish_overlapping(draft.spans)
        yield HoldRevision(draft.name, draft.spans[0], read)
        compares = [_created_at(alive_key(draft.name), draft.alive), closed_since(read)]
        writes: list[Put | DeleteRange] = [
            Put(OPEN + draft.name.encode(), BatchRecord(draft.name, draft.spans, draft.attempts).to_bytes()),
            DeleteRange(alive_key(draft.name)),
        ]
        if draft.query is not None:
            found: RangeResult = yield Range(draft.record_key)
            record = QueryRecord.of(draft.record_key, found.kvs)
            if record.has(draft.query):
                return None
            record.check(draft.query)
            compares.append(_modified_at(draft.record_key, record.revision))
            writes.append(Put(draft.record_key, record.after(draft.query)))
        if draft.unchanged_since:
            compares.append(_unchanged_since(*draft.spans[0], draft.unchanged_since))
        done: TxnResult = yield Txn(tuple(compares), tuple(writes))
        if done.succeeded:
            return done.revision
        yield from _check_stage(draft)
        yield from _check_prefix(draft)
    raise Contended(f"other writers published batches for these keys {TRIES} times; nothing was written: try again")


def _check_stage(draft: Draft) -> Generator[Request, Any, None]:
    found: RangeResult = yield Range(alive_key(draft.name))
    if not found.kvs or found.kvs[0].create_revision != draft.alive:
        raise StageLost(
            f"the staged rows of batch {draft.name} have expired; nothing was written: run it again, or give a longer "
            "option stageMs"
        )


def _check_prefix(draft: Draft) -> Generator[Request, Any, None]:
    if not draft.unchanged_since:
        return
    found: RangeResult = yield Range(*draft.spans[0], limit=1, min_mod_revision=draft.unchanged_since + 1)
    if found.kvs:
        raise PrefixChanged("other writers changed the keys that are overwritten; nothing was written: try again")


def finish_overlapping(spans: Iterable[KeySpan]) -> Generator[Request, Any, int]:
    """Copies and closes every open batch that writes keys of `spans`. Returns a revision at which there was none."""
    spans = tuple(spans)
    while True:
        found: RangeResult = yield Range(OPEN, prefix_end(OPEN))
        waiting = [record for record in opened(found) if record.overlaps(spans)]
        if not waiting:
            return found.revision
        for record in waiting:
            yield from copy_batch(record)


def opened(found: RangeResult) -> Iterator[BatchRecord]:
    """The open batches, with the revision that opened them. A malformed manifest opens no batch and is skipped."""
    for each in found.kvs:
        try:
            record = BatchRecord.from_bytes(each.key.removeprefix(OPEN).decode("utf-8", "replace"), each.value)
        except BadBatchRecord:
            continue
        yield replace(record, opened=each.create_revision)


def copy_batch(record: BatchRecord) -> Generator[Request, Any, None]:
    """Copies all chunks of an open batch, removes its other staged rows, and closes the batch."""
    for kind, span in zip((ROWS, REJECTS), record.spans, strict=False):
        yield from _copy_kind(record, kind, span)
    manifest = OPEN + record.name.encode()
    still_open = _created_at(manifest, record.opened)
    yield from discard(stage_prefix(record.name), (still_open,))
    closing = replace(record, attempts=())
    yield Txn((still_open,), (DeleteRange(manifest), Put(CLOSED + record.name.encode(), closing.to_bytes())))
    yield ReleaseRevision(record.name, record.spans[0])


def _copy_kind(record: BatchRecord, kind: bytes, span: KeySpan) -> Generator[Request, Any, None]:
    attempts, prefix = set(record.attempts), b"%s%s/" % (stage_prefix(record.name), kind)
    at, end = prefix, prefix_end(prefix)
    while True:
        yield HoldRevision(record.name, record.spans[0], record.opened)
        page: RangeResult = yield Range(at, end, limit=CHUNKS_PER_PAGE, keys_only=True, exact_count=False)
        chunks = [each.key for each in page.kvs if attempt_of(each.key) in attempts]
        if chunks:
            manifest = OPEN + record.name.encode()
            yield Together(tuple(CopyChunk(manifest, record.opened, chunk, *span) for chunk in chunks))
        if len(page.kvs) < CHUNKS_PER_PAGE:
            return
        at = page.kvs[-1].key + b"\0"


def attempt_of(chunk: bytes) -> str:
    return chunk.rsplit(b"/", 2)[1].decode("utf-8", "replace")


def discard(prefix: bytes, compares: tuple[Compare, ...]) -> Generator[Request, Any, None]:
    """Deletes the keys below `prefix`, in transactions of bounded size, as long as `compares` hold."""
    while True:
        found: RangeResult = yield Range(
            prefix, prefix_end(prefix), limit=DISCARDED_PER_TXN, keys_only=True, exact_count=False
        )
        if not found.kvs:
            return
        done: TxnResult = yield Txn(compares, tuple(DeleteRange(each.key) for each in found.kvs))
        if not done.succeeded:
            return


def sweep(minimal_revision: int) -> Generator[Request, Any, None]:
    """Removes stages that no writer renews and no manifest names, and records of batches that closed before MM."""
    at, end = STAGES, prefix_end(STAGES)
    while True:
        first: RangeResult = yield Range(at, end, limit=1, keys_only=True, exact_count=False)
        if not first.kvs:
            break
        name = first.kvs[0].key.removeprefix(STAGES).split(b"/")[0].decode("utf-8", "replace")
        yield from discard(stage_prefix(name), unused(name))
        at = prefix_end(stage_prefix(name))
    closed: RangeResult = yield Range(CLOSED, prefix_end(CLOSED), keys_only=True)
    old = [each.key for each in closed.kvs if each.create_revision < minimal_revision]
    if old:
        yield Txn((), tuple(map(DeleteRange, old[:CHUNKS_PER_PAGE])))


def unused(name: str) -> tuple[Compare, ...]:
    """Compares that no writer uses the stage: its alive key has expired, and no manifest names it."""
    return _absent(alive_key(name)), _absent(OPEN + name.encode())


def _created_at(key: bytes, revision: int) -> Compare:
    return Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, revision)


def _modified_at(key: bytes, revision: int) -> Compare:
    return Compare(key, CompareTarget.MOD, CompareResult.EQUAL, revision)


def _unchanged_since(key: bytes, range_end: bytes, revision: int) -> Compare:
    return Compare(key, CompareTarget.MOD, CompareResult.LESS, revision + 1, range_end)


def closed_since(revision: int) -> Compare:
    """Compares that no batch that is still open was opened after `revision`."""
    return _unchanged_since(OPEN, prefix_end(OPEN), revision)


def _absent(key: bytes) -> Compare:
    return Compare(key, CompareTarget.CREATE, CompareResult.EQUAL, 0)
