"""When a recovery refuses, waits and gives up (issue 3, R7, R8, M6; scenarios.md)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from palisade.metastore.lineage import Lineage as StoreLineage
from palisade.metastore.requests import Compact, DeleteRange, FoundCluster, Pin, Put
from palisade.recovery.chunks import chunk_of
from palisade.recovery.cost_estimate import Rates
from palisade.recovery.decision import Case, RefusalReason
from palisade.recovery.errors import ChunkDamaged, RecoveryRefused
from palisade.recovery.report import RecoveryOutcome
from palisade.vault.errors import VaultDiverged
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultLineage
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.recovery_world import Bench, unavailable
from tests.support.vault_feed import follow, full

DEAR = Rates(replay_s=1.0, snapshot_s=0.0, advantage=1.0)
"""Rates by which every replay costs more than a snapshot."""


REFUSALS = {
    RefusalReason.FOREIGN_CLUSTER: VaultLineage("another", 1, "n1"),
    RefusalReason.NEWER_HISTORY: VaultLineage("c1", 2, "n1"),
    RefusalReason.OLDER_HISTORY: VaultLineage("c1", 0, "n1"),
    RefusalReason.FOREIGN_NODE: VaultLineage("c1", 1, "n7"),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_vault_of_another_history_is_refused_and_unchanged(reason: RefusalReason) -> None:
    bench = Bench()
    assert bench.cluster.store.lineage == StoreLineage("c1", 1)
    Vault(bench.disk).claim(REFUSALS[reason])
    node = bench.node()
    before = node.disk.commits
    with pytest.raises(RecoveryRefused, match="What to do:") as refused:
        await node.recover()
    assert refused.value.refusal.reason is reason
    report = node.follower.reports[0]
    assert (report.outcome, report.case, report.reason) == (RecoveryOutcome.REFUSED, Case.D, reason.value)
    assert node.disk.commits == before
    assert node.recorded.state is None
    assert [name for name, _ in node.source.asked] == ["state"]


async def test_cluster_behind_the_vault_is_refused() -> None:
    """Case d."""
    bench = Bench(writes=60)
    await bench.once()
    bench.cluster = Bench(seed=1, writes=30).cluster
    with pytest.raises(RecoveryRefused, match="the cluster has lost acknowledged") as refused:
        await bench.node().recover()
    assert refused.value.refusal.reason is RefusalReason.AHEAD


async def test_vault_with_another_digest_at_lv_is_refused() -> None:
    bench = Bench(seed=1)
    await bench.once()
    bench.cluster = Bench(seed=2, writes=200).cluster
    with pytest.raises(RecoveryRefused) as refused:
        await bench.node().recover()
    assert refused.value.refusal.reason is RefusalReason.DIVERGED


async def test_standalone_start_needs_no_network() -> None:
    """R8."""
    bench = Bench()
    lv = (await bench.once()).vault.revision
    bench.write(10)
    node = bench.node(standalone=True)
    report = await node.recover()
    assert (report.case, report.outcome, report.lv) == (Case.STANDALONE, RecoveryOutcome.DONE, lv)
    assert node.source.asked == []
    assert node.recorded.state
    bench.disk = MemoryBackend()
    with pytest.raises(RecoveryRefused, match="has no state of the cluster"):
        await bench.node(standalone=True).recover()


@pytest.mark.parametrize("question", ["state", "changes", "pin", "sums", "rows", "spans", "fingerprints", "unpin"])
async def test_recovery_continues_when_the_majority_is_back(question: str) -> None:
    bench = Bench()
    await bench.once()
    bench.cluster.do(DeleteRange(b"/k/", b"/k0"))
    bench.cluster.do(Put(b"/new", b""))
    if question != "changes":
        bench.compact()
    node = bench.node()
    node.source.before[question] = unavailable(20)
    report = await node.recover()
    node.check()
    assert report.waits == (1 if question == "unpin" else 20)
    assert (node.clock.time > 20) == (question != "unpin")


async def test_waiting_recovery_ends_at_once_when_the_node_stops() -> None:
    bench = Bench()
    node = bench.node()
    node.source.before["state"] = unavailable(10**9)
    task = asyncio.create_task(node.recover())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert node.follower.reports[0].outcome is RecoveryOutcome.FAILED


async def test_damaged_chunk_is_requested_again_a_limited_number_of_times() -> None:
    bench = Bench()
    bench.compact()
    node, spoiled = bench.node(), []

    def spoil_some(chunk: Any) -> Any:
        spoiled.append(chunk)
        return chunk if len(spoiled) > 3 else type(chunk)(chunk.payload[:-1] + b"?", chunk.checksum, chunk.until)

    node.source.spoil["rows"] = spoil_some
    await node.recover()
    node.check()
    bench.disk = MemoryBackend()
    node = bench.node()
    node.source.spoil["rows"] = lambda chunk: type(chunk)(b"?" + chunk.payload, chunk.checksum, chunk.until)
    with pytest.raises(ChunkDamaged, match="arrived damaged 5 times"):
        await node.recover()


@pytest.mark.parametrize("question", ["rows", "spans", "fingerprints"])
@pytest.mark.parametrize("cut", [1, 7, 37])
async def test_incomplete_row_with_valid_checksum_ends_the_attempt_and_keeps_progress(question: str, cut: int) -> None:
    """Sent by a member that is faulty, or of another release."""
    bench = Bench()
    await bench.once()
    bench.write(30)
    bench.cluster.do(DeleteRange(b"/k/", b"/k0"))
    bench.write(30)
    bench.compact()
    node = bench.node()
    node.source.spoil[question] = lambda chunk: chunk_of([chunk.payload, b"?" * cut], chunk.until)
    with pytest.raises(ChunkDamaged, match=f"the {question} of a chunk are incomplete"):
        await node.recover()
    await bench.once()


async def test_failing_listener_leaves_lv_before_its_revision_and_the_next_start_retries() -> None:
    bench = Bench()
    lv = (await bench.once()).vault.revision
    bench.write(40)
    node = bench.node()

    def fail_at(revision: Any) -> None:
        if revision.number == lv + 17:
            raise RuntimeError("this component can't")

    node.recorded.on_revision = fail_at
    with pytest.raises(RuntimeError, match="this component can't"):
        await node.recover()
    assert (node.vault.revision, node.recorded.revisions) == (lv + 16, list(range(lv + 1, lv + 17)))
    assert node.follower.reports[0].outcome is RecoveryOutcome.FAILED
    assert node.follower.reports[0].revisions_replayed == 16
    again = bench.node()
    await again.recover()
    again.check()
    assert again.recorded.revisions[0] == lv + 17


async def test_replay_with_slow_listeners_commits_in_time() -> None:
    """So that little is repeated if the process dies."""
    bench = Bench()
    await bench.once()
    bench.write(100)
    node = bench.node()
    behind = []

    def slow(revision: Any) -> None:
        node.clock.time += 0.05
        behind.append(revision.number - node.vault.revision)

    node.recorded.on_revision = slow
    await node.recover()
    node.check()
    assert max(behind) <= 5


async def test_change_that_does_not_fit_stops_the_node_before_any_notification() -> None:
    bench = Bench(seed=1, writes=60)
    lv = (await bench.once()).vault.revision
    bench.write(30)
    node = bench.node()
    node.source.spoil["changes"] = lambda found: [found[0]._replace(bodies=found[1].bodies), *found[1:]]
    with pytest.raises(VaultDiverged):
        await node.recover()
    assert (node.vault.revision, node.recorded.revisions) == (lv, [])


async def test_pin_prevents_compaction_and_ends_by_itself() -> None:
    """M6: bounded on both sides."""
    bench = Bench()
    await bench.once()
    bench.write(60)
    node = bench.node(batch_revisions=5, difference=5)

    def compact_all() -> None:
        bench.cluster.do(Put(b"/more", b""))
        bench.cluster.do(Compact(bench.cluster.store.revision))

    node.source.before["changes"] = compact_all
    report = await node.recover()
    node.check()
    assert (report.case, report.snapshots, report.pinned) == (Case.B, 0, True)
    dead = bench.node()
    bench.write(60)
    dead.source.before["changes"] = unavailable(10**9)
    task = asyncio.create_task(dead.recover())
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert bench.cluster.store._compactor._live_pins()
    bench.cluster.wait(60_001)
    bench.cluster.do(Put(b"/more", b""))
    bench.cluster.do(Compact(bench.cluster.store.revision))
    assert bench.cluster.store.minimal_revision == bench.cluster.store.revision


async def test_pin_is_renewed_during_a_long_snapshot_up_to_a_limit() -> None:
    bench = Bench(writes=300)
    bench.compact()
    node = bench.node(pin_life_s_max=100.0)
    node.source.before["rows"] = lambda: setattr(node.clock, "time", node.clock.time + 30)
    node.source.before["fingerprints"] = node.source.before["rows"]
    await node.recover()
    node.check()
    pins = [arguments for name, arguments in node.source.asked if name == "pin"]
    assert all(0 < life_s <= 60 for _, life_s in pins)


async def test_recovery_continues_without_a_pin() -> None:
    bench = Bench()
    for number in range(bench.cluster.limits.pins_max):
        bench.cluster.do(Pin(f"other {number}", bench.cluster.store.revision, 60_000))
    node = bench.node()
    report = await node.recover()
    node.check()
    assert not report.pinned


async def test_snapshot_overtaken_by_compaction_continues_with_its_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palisade.metastore.change_feed.ROWS_PER_SLICE", 5)
    monkeypatch.setattr("palisade.recovery.store_source.SLICES_PER_CHUNK", 1)
    bench = Bench(writes=300)
    bench.compact()
    node = bench.node()
    asked = []

    def overtake() -> None:
        asked.append(None)
        if len(asked) in (4, 9):
            bench.cluster.store._compactor._pins.clear()
            bench.write(5)
            bench.compact()

    node.source.before["rows"] = overtake
    report = await node.recover()
    node.check()
    assert report.snapshots == 1
    newer = [arguments[2] for name, arguments in node.source.asked if name == "rows"]
    assert len(set(newer)) > 2, "the keys that were there were asked for by their later revision"


async def test_wrong_vault_content_is_repaired_bucket_by_bucket() -> None:
    """Third stage of the difference: keys that are in the vault and should not be, older versions, missing ones."""
    bench = Bench(writes=300)
    await bench.once()
    bench.compact()
    bench.write(5)
    bench.compact()
    other = Driver()
    for number in range(150):
        other.do(Put(b"/k/%04d" % number, b"never was"))
    vault = Vault(bench.disk)
    lineage, lv = vault.lineage, vault.revision
    assert lineage is not None
    bench.disk = MemoryBackend()
    spoilt = Vault(bench.disk)
    follow(spoilt, other)
    spoilt.claim(lineage)
    assert spoilt.revision < lv
    node = bench.node()
    report = await node.recover()
    node.check()
    assert report.case is Case.C
    assert 0 in [arguments[2] for name, arguments in node.source.asked if name == "rows"], "whole buckets"


async def test_recovery_waits_for_the_cluster_id() -> None:
    """A vault claimed without a cluster id would be refused by the same cluster a moment later."""
    bench = Bench()
    bench.cluster = full([(b"a", b"1")])
    node = bench.node()
    asked: list[None] = []

    def found() -> None:
        asked.append(None)
        if len(asked) == 4:
            bench.cluster.do(FoundCluster("late"))

    node.source.before["state"] = found
    report = await node.recover()
    assert report.waits == 3
    assert node.vault.lineage == VaultLineage("late", 1, "n1")


@pytest.mark.parametrize("pin_s", [1800.0, 0.0], ids=["pinned", "not pinned"])
async def test_restore_during_a_replay_is_noticed(pin_s: float) -> None:
    """It has fewer revisions than were to be replayed: the recovery must not wait for lost ones."""
    bench = Bench()
    await bench.once()
    bench.write(60)
    node = bench.node(batch_revisions=10, pin_life_s_max=pin_s)
    asked: list[None] = []

    def restored() -> None:
        asked.append(None)
        if len(asked) == 3:
            node.source.connect(Bench(seed=1, writes=10).cluster)

    node.source.before["changes"] = restored
    async with asyncio.timeout(20):
        with pytest.raises(RecoveryRefused) as refused:
            await node.recover()
    assert refused.value.refusal.reason is RefusalReason.AHEAD


@pytest.mark.parametrize("question", ["pin", "sums", "rows", "spans", "fingerprints"])
async def test_restore_during_a_snapshot_is_noticed(question: str) -> None:
    """The target revision of the snapshot will never exist again with the same content."""
    bench = Bench()
    await bench.once()
    bench.cluster.do(DeleteRange(b"/k/", b"/k0"))
    bench.write(20)
    bench.compact()
    node = bench.node()
    node.source.before[question] = lambda: node.source.connect(Bench(seed=1, writes=10).cluster)
    async with asyncio.timeout(20):
        with pytest.raises(RecoveryRefused) as refused:
            await node.recover()
    assert refused.value.refusal.reason is RefusalReason.AHEAD
