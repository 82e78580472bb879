"""Batches above one transaction: staged by tasks, visible as a whole, exactly once (issue 18)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from palisade.client.sync_client import SyncClient
from palisade.metastore.lineage import Lineage
from palisade.metastore.requests import CopyChunk
from palisade.pipeline import cluster, large_batch, task_rows
from palisade.pipeline.batch_run import run_steps
from palisade.pipeline.batch_steps import StageLost, alive_key, finish_overlapping, opened, sweep
from palisade.pipeline.cluster import current, fix
from palisade.pipeline.cuts import BatchOpen, InsideBatch
from palisade.pipeline.large_batch import spans_of
from palisade.pipeline.offsets import OtherLineage
from palisade.pipeline.options import ReadOptions, WriteTarget, read_options
from palisade.pipeline.sink_rows import BatchTooLarge, RowsRejected
from palisade.wire.auth_errors import PermissionDenied
from palisade.wire.batch_records import OPEN
from tests.support.threaded_node import ThreadedNode
from tests.support.written_batches import commit, contents, publish, task

APPEND = WriteTarget(b"p/", False, "", "records/")
OVERWRITE = WriteTarget(b"p/", True, "", "records/")
WITH_REJECTS = WriteTarget(b"p/", False, "bad/", "records/")
COUNT = 3_000


def pairs(first: int, count: int, value: str = "v") -> Iterator[tuple[str, str]]:
    return ((f"p/{number:06d}", f"{value}{number}") for number in range(first, first + count))


def staged(client: SyncClient) -> int:
    return client.range("pipeline/stages/", prefix=True, count_only=True).count


def expected(count: int, value: str = "v") -> dict[bytes, bytes]:
    return {key.encode(): text.encode() for key, text in pairs(0, count, value)}


def test_rows_of_several_tasks_become_visible_between_two_revisions(blocking: SyncClient) -> None:
    blocking.put("p/000001", "old")
    opened = publish(blocking, APPEND, pairs(0, 1_500), pairs(1_500, 1_500), pairs(COUNT, 0))
    (window,) = blocking.scan_windows(b"p/", b"p0")
    assert window.opened == opened
    assert contents(blocking) == expected(COUNT)
    changed = {kv.mod_revision for kv in blocking.range("p/", prefix=True).kvs}
    assert window.opened < min(changed) <= max(changed) < window.closed
    before = blocking.range("p/", prefix=True, revision=window.opened).kvs
    assert [(kv.key, kv.value) for kv in before] == [(b"p/000001", b"old")]
    assert staged(blocking) == 0
    assert blocking.scan_windows(b"q/", b"q0") == []


def test_message_of_a_task_is_small_however_many_rows_it_has(blocking: SyncClient) -> None:
    few, many = task(blocking, APPEND, pairs(0, 900)), task(blocking, APPEND, pairs(0, 5_000), attempt="00001-1")
    assert (len(few.writes), few.staged) == (900, None)
    assert (len(many.writes), many.count) == (0, 5_000)
    assert many.staged is not None
    large = task(blocking, APPEND, [(f"p/{number}", "v" * 100_000) for number in range(4)], attempt="00002-2")
    assert large.staged is not None


def test_batch_of_one_transaction_that_tasks_have_staged_is_one_revision(
    blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_rows, "KEPT_ROWS", 10)
    revision = publish(blocking, WITH_REJECTS, [*pairs(0, 100), ("q/x", "1")], pairs(100, 5))
    assert {kv.mod_revision for kv in blocking.range("p/", prefix=True).kvs} == {revision}
    assert contents(blocking) == expected(105)
    assert len(contents(blocking, "bad/")) == 1
    assert staged(blocking) == 0
    assert blocking.scan_windows(b"p/", b"p0") == []


def test_attempts_that_spark_does_not_commit_are_not_published(blocking: SyncClient) -> None:
    """A speculative attempt that ran to its end, with other rows."""
    parts = [task(blocking, APPEND, pairs(0, COUNT), attempt="00000-7")]
    task(blocking, APPEND, pairs(0, COUNT, "other"), attempt="00000-8")
    commit(blocking, APPEND, parts)
    assert contents(blocking) == expected(COUNT)
    assert staged(blocking) == 0


@pytest.mark.parametrize("where", ["one task", "two tasks", "kept and staged"])
def test_keys_that_occur_twice_are_found_across_tasks(blocking: SyncClient, where: str) -> None:
    tasks: dict[str, list[Any]] = {
        "one task": [[*pairs(0, COUNT), *pairs(7, 1, "again")]],
        "two tasks": [pairs(0, COUNT), [*pairs(7, 1, "again"), *pairs(COUNT, 1_500)]],
        "kept and staged": [pairs(0, COUNT), pairs(7, 1, "again")],
    }
    rows = [list(each) for each in tasks[where]]
    with pytest.raises(RowsRejected, match=r"2 rows.*p/000007.*occurs 2 times"):
        publish(blocking, APPEND, *rows)
    assert contents(blocking) == {}
    assert staged(blocking) == 0
    publish(blocking, WITH_REJECTS, *rows, stage="u")
    found = contents(blocking)
    assert b"p/000007" not in found
    assert len(found) == len({key for part in rows for key, _ in part}) - 1
    rejects = contents(blocking, "bad/u/")
    assert list(rejects.values()) == [b'{"key": "p/000007", "reason": "the key occurs 2 times in one batch"}'] * 2


def test_bad_rows_fail_a_large_batch_or_go_to_the_rejects_with_it(blocking: SyncClient) -> None:
    rows = [*pairs(0, 10), ("p/null", None), *pairs(10, COUNT - 10), ("q/x", "1"), ("p/big", "v" * 1_048_570)]
    with pytest.raises(RowsRejected, match="3 rows cannot be written, the first is key 'p/null'"):
        publish(blocking, APPEND, rows)
    assert contents(blocking) == {}
    publish(blocking, WITH_REJECTS, rows, [("p/kept", None)], stage="u")
    assert contents(blocking) == expected(COUNT)
    reasons = b" ".join(contents(blocking, "bad/u/").values())
    for part in (b"p/null", b"q/x", b"p/kept", b"in a batch above one transaction the limit is"):
        assert part in reasons
    assert len(contents(blocking, "bad/u/")) == 4


def test_overwrite_replaces_the_prefix_as_a_whole(blocking: SyncClient) -> None:
    blocking.put_many((f"p/{number:06d}", "old") for number in range(0, 4_000, 2))
    blocking.put("q/x", "old")
    opened = publish(blocking, OVERWRITE, pairs(0, COUNT))
    assert contents(blocking) == expected(COUNT)
    assert contents(blocking, "q/") == {b"q/x": b"old"}
    assert blocking.get("p/000002").version == 2  # type: ignore[union-attr]
    assert len(blocking.range("p/", prefix=True, revision=opened or 0).kvs) == 2_000
    assert staged(blocking) == 0


def test_overwrite_deletes_keys_whose_rows_are_rejected(blocking: SyncClient) -> None:
    """As in a batch of one transaction: the batch does not have them."""
    blocking.put_many(pairs(0, 20, "old"))
    target = WriteTarget(b"p/", True, "bad/", "records/")
    publish(blocking, target, [*pairs(0, COUNT), *pairs(7, 1, "again"), ("p/000008", None, "put")])
    assert contents(blocking).keys() == expected(COUNT).keys() - {b"p/000007"}
    assert len(contents(blocking, "bad/")) == 3


def test_overwrite_with_few_rows_and_many_old_keys(blocking: SyncClient) -> None:
    blocking.put_many(pairs(0, 1_500))
    publish(blocking, OVERWRITE, [("p/new", "1")])
    assert contents(blocking) == {b"p/new": b"1"}


def test_large_batch_of_a_query_is_published_once(blocking: SyncClient) -> None:
    assert publish(blocking, APPEND, pairs(0, COUNT), query=("q", 0), stage="t-0") is not None
    blocking.put("p/000000", "later")
    assert publish(blocking, APPEND, pairs(0, COUNT), query=("q", 0), stage="u-0") is None
    assert contents(blocking)[b"p/000000"] == b"later"
    assert staged(blocking) == 0
    assert publish(blocking, APPEND, pairs(0, 5), query=("q", 1), stage="u-1") is not None


def stop(*_: Any) -> None:
    raise InterruptedError


def test_batch_whose_driver_dies_after_the_manifest_is_finished_by_the_next_one(
    blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(large_batch, "finish_overlapping", stop)
        with pytest.raises(InterruptedError):
            publish(blocking, APPEND, pairs(0, COUNT), query=("q", 0), stage="t-0")
    (window,) = blocking.scan_windows(b"p/", b"p0")
    assert (window.closed, contents(blocking)) == (0, {})
    blocking.put("p/000001", "later")
    assert publish(blocking, APPEND, pairs(0, COUNT), query=("q", 0), stage="u-0") is None
    assert contents(blocking) == expected(COUNT) | {b"p/000001": b"later"}
    assert staged(blocking) == 0


def test_publication_with_deletes_finishes_an_open_batch_first(
    blocking: SyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its delete would find nothing to delete, and the row would appear later."""
    with monkeypatch.context() as patch:
        patch.setattr(large_batch, "finish_overlapping", stop)
        with pytest.raises(InterruptedError):
            publish(blocking, APPEND, pairs(0, COUNT))
    publish(blocking, APPEND, [("p/000001", None, "delete")], stage="u")
    run_steps(blocking, finish_overlapping(spans_of(APPEND)))
    assert b"p/000001" not in contents(blocking)
    assert len(contents(blocking)) == COUNT - 1


def test_stage_that_expired_is_not_published(blocking: SyncClient) -> None:
    part = task(blocking, APPEND, pairs(0, COUNT))
    blocking.delete(alive_key("t"))
    run_steps(blocking, sweep(1))
    assert staged(blocking) == 0
    with pytest.raises(StageLost, match="stageMs"):
        commit(blocking, APPEND, [part, task(blocking, APPEND, pairs(COUNT, COUNT), attempt="00001-1")])
    assert contents(blocking) == {}


def test_sweep_removes_abandoned_stages_alone(blocking: SyncClient) -> None:
    task(blocking, APPEND, pairs(0, COUNT), stage="live")
    task(blocking, APPEND, pairs(0, COUNT), stage="dead")
    blocking.delete(alive_key("dead"))
    run_steps(blocking, sweep(1))
    left = blocking.range("pipeline/stages/", prefix=True, keys_only=True).kvs
    assert {kv.key.split(b"/")[2] for kv in left} == {b"live"}


def test_records_of_closed_batches_are_removed_once_no_reader_needs_them(blocking: SyncClient) -> None:
    publish(blocking, APPEND, pairs(0, COUNT))
    (window,) = blocking.scan_windows(b"p/", b"p0")
    run_steps(blocking, sweep(window.closed))
    assert blocking.scan_windows(b"p/", b"p0") == [window]
    run_steps(blocking, sweep(window.closed + 1))
    assert blocking.scan_windows(b"p/", b"p0") == []


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        (WriteTarget(b"", False, "", "r/"), "needs option prefix"),
        (WriteTarget(b"p", False, "bad/", "r/"), "cannot write keys below pipeline/stages/"),
        (WriteTarget(b"p/", False, "p/bad/", "r/"), "overlap"),
    ],
)
def test_targets_that_no_large_batch_may_have(target: WriteTarget, reason: str) -> None:
    with pytest.raises(BatchTooLarge, match=reason):
        spans_of(target)


def test_checkpoint_of_another_cluster_or_history_is_refused(blocking: SyncClient) -> None:
    """Its earlier batches are missing here."""
    with pytest.raises(OtherLineage, match="batches 0 to 4 of query q are not in generation 1 of cluster 'c'"):
        publish(blocking, APPEND, [("p/a", "1")], query=("q", 5))
    publish(blocking, APPEND, [("p/a", "1")], query=("q", 0))
    publish(blocking, APPEND, [("p/a", "3")], query=("q", 3))  # batches 1 and 2 had no rows and no tasks
    restored = Lineage("c", 2)
    part = [task(blocking, APPEND, [("p/a", "6")])]
    with pytest.raises(OtherLineage, match=r"write 5 to the key records/q"):
        commit(blocking, APPEND, part, query=("q", 6), here=restored)
    assert commit(blocking, APPEND, part, query=("q", 4), here=restored) is not None
    blocking.put("records/q", "5")
    assert commit(blocking, APPEND, part, query=("q", 6), here=restored) is not None


# Readers.


def options_of(node: ThreadedNode, **more: object) -> ReadOptions:
    texts = {name: str(value) for name, value in more.items()}
    return read_options({"endpoints": node.address, "prefix": "p/", "timeoutMs": "500"} | texts)


@pytest.fixture
def halted(blocking: SyncClient, monkeypatch: pytest.MonkeyPatch) -> int:
    """The revision of a batch whose driver has died after a third of its chunks."""
    with monkeypatch.context() as patch:
        patch.setattr(large_batch, "finish_overlapping", stop)
        with pytest.raises(InterruptedError):
            publish(blocking, APPEND, pairs(0, COUNT))
    (record,) = opened(blocking.range(OPEN, prefix=True))
    chunks = blocking.range("pipeline/stages/t/rows/", prefix=True, keys_only=True).kvs[:2]
    for chunk in chunks:
        blocking.copy_chunk(CopyChunk(OPEN + b"t", record.opened, chunk.key, *record.spans[0]))
    assert 0 < len(contents(blocking)) < COUNT
    return record.opened


def test_reader_completes_an_open_batch(blocking: SyncClient, threaded: ThreadedNode, halted: int) -> None:
    pinned = fix(blocking, options_of(threaded), "reader")
    assert len(blocking.range("p/", prefix=True, revision=pinned.revision).kvs) == COUNT


def test_reader_without_the_right_to_complete_a_batch_does_not_read_a_part_of_it(
    blocking: SyncClient, threaded: ThreadedNode, halted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: Any) -> None:
        raise PermissionDenied("no write on pipeline/")

    monkeypatch.setattr(cluster, "run_steps", denied)
    with pytest.raises(BatchOpen, match=f"published at revision {halted} is not complete"):
        fix(blocking, options_of(threaded), "reader")
    assert current(blocking, options_of(threaded)).revision == halted
    assert fix(blocking, options_of(threaded, revision=halted), "reader").revision == halted
    with pytest.raises(InsideBatch, match=f"{halted} "):
        fix(blocking, options_of(threaded, revision=halted + 1), "reader")


def test_histories_neither_begin_nor_end_within_a_batch(blocking: SyncClient, threaded: ThreadedNode) -> None:
    publish(blocking, APPEND, pairs(0, COUNT))
    (window,) = blocking.scan_windows(b"p/", b"p0")
    inside = window.opened + 2
    with pytest.raises(InsideBatch, match=f"option toRevision: .*{window.opened} .*or {window.closed} "):
        fix(blocking, options_of(threaded, history="true", toRevision=inside), "reader")
    with pytest.raises(InsideBatch, match="option fromRevision"):
        fix(blocking, options_of(threaded, history="true", fromRevision=inside), "reader")
    whole = options_of(threaded, history="true", fromRevision=window.opened, toRevision=window.closed)
    assert fix(blocking, whole, "reader").revision == window.closed
    blocking.unpin(b"p/", b"p0", "reader")
    blocking.put("p/later", "1")
    blocking.compact(inside)
    assert fix(blocking, options_of(threaded, history="true"), "reader").oldest == window.closed + 1
