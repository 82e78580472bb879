"""Every way in which a node returns, with the real state machine in simulated time (issue 3, R2 to R8, R11, R12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest

from palisade.metastore.requests import Compact, DeleteRange, Put
from palisade.recovery.chunks import chunk_of, unpack_spans
from palisade.recovery.cost_estimate import Rates
from palisade.recovery.decision import Case, SnapshotReason
from palisade.recovery.report import RecoveryOutcome, RecoveryPhase
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.span_sums import HEADER, Span
from tests.support.recovery_world import Bench, Node, Shelf
from tests.support.vault_feed import compact

DEAR = Rates(replay_s=1.0, snapshot_s=0.0, advantage=1.0)
"""Rates by which every replay costs more than a snapshot."""


async def test_up_to_date_vault_joins_at_once() -> None:
    bench = Bench()
    await bench.once()
    node = bench.node()
    report = await node.recover()
    node.check()
    assert (report.case, report.reason, report.outcome) == (Case.A, "LV = LM", RecoveryOutcome.DONE)
    assert (report.revisions_replayed, report.snapshots) == (0, 0)
    assert [name for name, _ in node.source.asked] == ["state", "state"], "once more when all have started"


@pytest.mark.parametrize("missed", [1, 2, 99, 100, 101, 2500])
async def test_missed_revisions_are_replayed_one_by_one_in_order(missed: int) -> None:
    """Case b; LV = LM - 1 among them."""
    bench = Bench()
    lv = (await bench.once()).vault.revision
    for number in range(missed):
        bench.cluster.do(Put(b"/k/%d" % (number % 7), b"%d" % number))
    node = bench.node(difference=100)
    report = await node.recover()
    node.check()
    assert (report.case, report.first_case, report.revisions_replayed) == (Case.B, Case.B, missed)
    assert node.recorded.revisions == list(range(lv + 1, lv + missed + 1))
    assert (report.lv_before, report.lv, report.lm) == (lv, lv + missed, lv + missed)
    assert report.pinned
    assert not bench.cluster.store._compactor._pins


async def test_several_batches_share_a_commit_if_configured() -> None:
    """Issue 3, "How fast": 8 of them cost a fifth less. Not beyond 2 MiB."""
    bench = Bench()
    await bench.once()
    for number in range(39):
        bench.cluster.do(Put(b"/k/%d" % number, bytes(300_000 if number >= 30 else 3)))
    node = await bench.once(batch_revisions=10, batches_per_commit=9)
    assert len(node.recorded.revisions) == 39
    replay = [name for name in node.steps.names if name in ("changes", "commit")][-10:]
    assert replay == [*["changes"] * 7, "commit", "changes", "commit"]


async def test_empty_node_replays_from_the_first_revision_or_takes_a_snapshot() -> None:
    """LV = 0."""
    bench = Bench()
    assert (await bench.once()).follower.reports[0].case is Case.B
    bench.disk, bench.shelf = MemoryBackend(), Shelf()
    bench.compact()
    report = (await bench.once()).follower.reports[0]
    assert (report.case, report.reason) == (Case.C, SnapshotReason.COMPACTED.value)


@pytest.mark.parametrize(("kept", "case"), [(1, Case.B), (2, Case.C)])
async def test_recovery_at_mm_exactly_lv_plus_1_and_lv_plus_2(kept: int, case: Case) -> None:
    bench = Bench()
    lv = (await bench.once()).vault.revision
    bench.write(30)
    compact(bench.cluster, lv + kept)
    node = bench.node()
    assert (await node.recover()).case is case
    node.check()


async def test_snapshot_transfers_the_difference_and_evicts_local_data() -> None:
    """Case c: the cluster compacts past a stopped node and it returns."""
    bench = Bench(writes=600)
    bench.assign(p1="1", p2="1", p3="1")
    await bench.once()
    bench.assign(p1="1", p2="2", p4="1")
    bench.cluster.do(DeleteRange(b"/k/0001"))
    bench.compact()
    node = bench.node()
    report = await node.recover()
    node.check()
    assert node.resources.done == ["evict p2", "evict p3", "fetch p2", "fetch p4"]
    assert (report.resources.kept, report.resources.evicted, report.resources.fetched) == (1, 2, 2)
    assert (report.keys.fetched, report.snapshots, report.case) == (3, 1, Case.C)
    assert report.keys.evicted in (1, 2)
    assert [phase for phase, _ in report.phases] == [
        RecoveryPhase.ASK,
        RecoveryPhase.SNAPSHOT,
        RecoveryPhase.EVICTION,
        RecoveryPhase.START,
    ]
    assert node.recorded.revisions == []
    assert node.recorded.differences == []


async def test_snapshot_transfers_only_part_of_the_bytes() -> None:
    """R11: 1 % of 10,000 keys were changed, added and deleted."""
    bench = Bench(writes=0)
    for start in range(0, 10_000, 500):
        bench.cluster.all(*(Put(b"/t/%05d" % n, bytes(200)) for n in range(start, start + 500)))
    whole = (await bench.once(rates=DEAR)).follower.reports[0]
    assert whole.keys.fetched == 10_000
    for number in range(0, 10_000, 200):
        bench.cluster.do(Put(b"/t/%05d" % number, b"new" * 60))
    for number in range(50, 10_000, 400):
        bench.cluster.do(DeleteRange(b"/t/%05d" % number))
    for number in range(25):
        bench.cluster.do(Put(b"/u/%05d" % number, b"new" * 60))
    bench.compact()
    part = (await bench.once()).follower.reports[0]
    assert (part.keys.fetched, part.keys.evicted, part.keys.kept) == (75, 25, 9_925)
    digests = 16 * 4096
    assert part.bytes_fetched - digests < 0.03 * whole.bytes_fetched


def asked_of(node: Node, question: str) -> list[tuple[Any, ...]]:
    return [arguments for name, arguments in node.source.asked if name == question]


@pytest.mark.parametrize("deleted", [range(0, 2000, 20), [0, 1], [1998, 1999], [500]])
async def test_scattered_deletes_are_found_by_counts_and_sums(deleted: Iterable[int]) -> None:
    """R11: of 1,000,000 keys 1 % changed, half of these deleted, took a third of the time of a full copy."""
    bench = Bench(writes=0)
    bench.cluster.all(*(Put(b"/t/%05d" % n, b"") for n in range(1000)))
    bench.cluster.all(*(Put(b"/t/%05d" % n, b"") for n in range(1000, 2000)))
    await bench.once()
    for number in deleted:
        bench.cluster.do(DeleteRange(b"/t/%05d" % number))
    bench.cluster.do(Put(b"/z", b""))
    bench.compact()
    node = await bench.once()
    assert node.follower.reports[0].keys.evicted == len(list(deleted))
    assert len(asked_of(node, "spans")) == 1
    assert asked_of(node, "fingerprints") == []
    assert [arguments[2] for arguments in asked_of(node, "rows")] != [0]


@pytest.mark.parametrize(
    ("deleted", "starts"),
    [
        ([100, 101, 102], [b"/t/00096"]),
        ([*range(100, 700)], [b"/t/00096"]),
        ([*range(0, 2000, 3)], [b""]),
        ([5, 6, 7, 1500, 1501, 1502], [b"", b"/t/01475"]),
    ],
)
async def test_clustered_deletes_are_requested_key_by_key(deleted: list[int], starts: list[bytes]) -> None:
    bench = Bench(writes=0)
    bench.cluster.all(*(Put(b"/t/%05d" % n, b"") for n in range(1000)))
    bench.cluster.all(*(Put(b"/t/%05d" % n, b"") for n in range(1000, 2000)))
    await bench.once()
    for number in deleted:
        bench.cluster.do(DeleteRange(b"/t/%05d" % number))
    bench.cluster.do(Put(b"/z", b""))
    bench.compact()
    node = await bench.once()
    assert node.follower.reports[0].keys.evicted == len(deleted)
    assert [start for _, _, start, _ in asked_of(node, "fingerprints")] == starts
    assert 0 not in [newer_than for _, _, newer_than, _, _ in asked_of(node, "rows")], "whole buckets"


@pytest.mark.parametrize("fault", ["more", "fewer", "sum", "end", "nothing", "order"])
async def test_wrong_spans_cost_time_and_change_nothing(fault: str) -> None:
    """What proves the content is the sum of each bucket, whatever a faulty member says on the way."""
    bench = Bench(writes=0)
    bench.cluster.all(*(Put(b"/t/%05d" % n, b"") for n in range(900)))
    await bench.once()
    for number in range(0, 900, 90):
        bench.cluster.do(DeleteRange(b"/t/%05d" % number))
    bench.compact()
    node = bench.node()
    node.source.spoil["spans"] = lambda chunk: chunk_of(
        [*map(packed, spoilt(unpack_spans(chunk.payload), fault))], None
    )
    report = await node.recover()
    node.check()
    assert report.keys.kept == 890


def spoilt(spans: list[Span], fault: str) -> list[Span]:
    match fault:
        case "more":
            return [span._replace(keys=span.keys + 1) for span in spans]
        case "fewer":
            return [span._replace(keys=span.keys - 1) for span in spans]
        case "sum":
            return [span._replace(total=span.total ^ 1) for span in spans]
        case "end":
            return [*(span._replace(end=span.end[:-1]) for span in spans[:-1]), spans[-1]]
        case "order":
            return spans[::-1]
        case _:
            return []


def packed(span: Span) -> bytes:
    return HEADER.pack(span.total, span.keys, len(span.end)) + span.end


async def test_replay_overtaken_by_compaction_becomes_a_snapshot() -> None:
    """R6: it changes to a snapshot; nothing is lost or repeated."""
    bench = Bench()
    await bench.once()
    bench.write(50)
    node = bench.node(batch_revisions=10)
    asked = []

    def compact_once() -> None:
        asked.append(None)
        if len(asked) == 3:
            bench.cluster.store._compactor._pins.clear()
            bench.compact()

    node.source.before["changes"] = compact_once
    report = await node.recover()
    node.check()
    assert (report.first_case, report.case, report.reason) == (Case.B, Case.C, SnapshotReason.COMPACTED.value)
    assert report.revisions_replayed == 20
    assert len(node.recorded.revisions) == len(set(node.recorded.revisions)) == 20
    assert node.recorded.differences


async def test_replay_costlier_than_a_snapshot_becomes_one() -> None:
    bench = Bench()
    await bench.once()
    for number in range(4000):
        bench.cluster.do(Put(b"/busy", b"%d" % number))
    node = bench.node(difference=100)

    def slow(_: object) -> None:
        node.clock.time += 0.01

    node.recorded.on_revision = slow
    report = await node.recover()
    node.check()
    assert (report.first_case, report.case, report.reason) == (Case.B, Case.C, SnapshotReason.COST.value)
    assert 2000 <= report.revisions_replayed < 4000
    assert [event.key for event in node.recorded.differences] == [b"/busy"]


async def test_slow_start_of_a_replay_does_not_count_as_its_speed() -> None:
    """Seen over HTTP (issue 3, "How fast"): pinning MM on a busy disk took longer than 2,000 revisions."""
    bench = Bench()
    await bench.once()
    for number in range(4000):
        bench.cluster.do(Put(b"/busy", b"%d" % number))
    node = bench.node(difference=100)

    def slow() -> None:
        node.clock.time += 5.0

    node.source.before["pin"] = slow
    report = await node.recover()
    node.check()
    assert (report.case, report.revisions_replayed, report.snapshots) == (Case.B, 4000, 0)


async def test_replay_known_to_be_too_costly_is_not_begun() -> None:
    bench = Bench()
    await bench.once()
    bench.write(200)
    report = (await bench.once(rates=DEAR, difference=100)).follower.reports[0]
    assert (report.first_case, report.reason, report.revisions_replayed) == (Case.C, SnapshotReason.COST.value, 0)


async def test_writes_faster_than_listeners_lead_to_a_snapshot_and_a_larger_difference() -> None:
    """Never a livelock."""
    bench = Bench()
    await bench.once()
    bench.write(50)
    node = bench.node(difference=5)

    def busy(revision: object = None) -> None:
        for number in range(2 if revision else 20):
            bench.cluster.do(Put(b"/busy/%d" % number, b""))

    node.recorded.on_revision = node.source.before["state"] = busy
    async with asyncio.timeout(60):
        report = await node.recover()
    assert report.outcome is RecoveryOutcome.DONE
    assert (report.reason, report.snapshots) == (SnapshotReason.STUCK.value, 1)
    assert report.difference > 5
    node.recorded.on_revision = None
    del node.source.before["state"]
    node.difference.value = 0
    await node.recover(running=True)
    node.check()


async def test_difference_can_be_changed_during_catch_up() -> None:
    bench = Bench()
    await bench.once()
    bench.write(50)
    node = bench.node(difference=0)

    def busy(revision: object) -> None:
        bench.cluster.do(Put(b"/busy", b""))
        if len(node.recorded.revisions) == 20:
            node.difference.value = 10_000

    node.recorded.on_revision = busy
    report = await node.recover()
    assert (report.difference, report.snapshots) == (10_000, 0)


async def test_reports_are_plain_values() -> None:
    bench = Bench()
    bench.compact()
    node = await bench.once()
    shown = json.loads(json.dumps(node.follower.reports[0].as_dict()))
    assert shown["case"] == "c"
    assert shown["outcome"] == "done"
    assert shown["keys"]["fetched"] > 0
    assert set(shown["phases"]) == {"ask", "snapshot", "eviction", "start"}
    assert shown["bytes_fetched"] > 0
    phases = {progress.phase for progress in node.progress}
    assert phases >= {RecoveryPhase.ASK, RecoveryPhase.SNAPSHOT, RecoveryPhase.START}


async def test_lm_is_read_again_after_slow_eviction_and_start() -> None:
    """Seed 001, case c: "If smart eviction takes significant time, the node should check the current value of LM"."""
    bench = Bench()
    await bench.once()
    bench.assign(p1="1", p2="1")
    bench.compact()
    node = bench.node(difference=10)
    evict, fetch, start = node.resources.evict, node.resources.fetch, node.recorded.start

    async def slow_fetch(name: str, version: str) -> None:
        await fetch(name, version)
        bench.cluster.all(*(Put(b"/meanwhile/%d" % number, b"") for number in range(200)))

    async def slow_start() -> None:
        await start()
        bench.cluster.all(*(Put(b"/started/%d" % number, b"") for number in range(200)))

    node.resources.fetch, node.recorded.start = slow_fetch, slow_start  # type: ignore[method-assign]
    report = await node.recover()
    node.check()
    assert (report.case, report.snapshots, report.outcome) == (Case.C, 1, RecoveryOutcome.DONE)
    assert bench.cluster.store.revision - node.vault.revision <= 10
    assert evict is not None


async def test_pin_is_held_during_an_eviction() -> None:
    """M6: otherwise compaction passes LV before the node can continue from it."""
    bench = Bench()
    await bench.once()
    names = {f"p{number}": "1" for number in range(8)}
    bench.assign(**names)
    bench.compact()
    node = bench.node()
    fetch = node.resources.fetch

    async def slow(name: str, version: str) -> None:
        await fetch(name, version)
        node.clock.time += 30
        bench.cluster.wait(30_000)
        bench.cluster.do(Put(b"/meanwhile", b""))
        bench.cluster.do(Compact(bench.cluster.store.revision))

    node.resources.fetch = slow  # type: ignore[method-assign]
    report = await node.recover()
    node.check()
    assert (report.snapshots, report.revisions_replayed) == (1, 8)
