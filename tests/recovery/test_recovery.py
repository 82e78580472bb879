"""Every way in which a node comes back, over the real state machine in simulated time (issue 3, R2 to R8, R11, R12)."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from metastore.lineage import Lineage as StoreLineage
from metastore.requests import Compact, DeleteRange, Put
from recovery.decide import Case, RefusalReason, SnapshotReason
from recovery.errors import ChunkDamaged, RecoveryRefused
from recovery.estimate import Rates
from recovery.report import Outcome, Phase
from tests.support.meta_driver import Driver
from tests.support.recovery_world import Node, Shelf, unavailable
from tests.support.vault_feed import compact, full, write_some
from vault.errors import VaultDiverged
from vault.memory_backend import MemoryBackend
from vault.position import Lineage
from vault.vault import Vault

DEAR = Rates(replay_s=1.0, snapshot_s=0.0, advantage=1.0)
"""Rates by which every replay costs more than a snapshot."""


class Bench:
    """A cluster, and a node's disks over its starts."""

    def __init__(self, seed: int = 1, writes: int = 60) -> None:
        self.rng = random.Random(seed)
        self.cluster = full([])
        self.disk, self.shelf = MemoryBackend(), Shelf()
        self.write(writes)

    def write(self, writes: int) -> None:
        write_some(self.cluster, self.rng, writes)

    def assign(self, **versions: str) -> None:
        self.cluster.do(DeleteRange(b"/assigned/", b"/assigned0"))
        for name, version in versions.items():
            self.cluster.do(Put(b"/assigned/" + name.encode(), version.encode()))

    def compact(self) -> None:
        compact(self.cluster, self.cluster.store.revision)

    def node(self, **options: Any) -> Node:
        return Node(self.cluster, self.disk, self.shelf, **options)

    async def once(self, **options: Any) -> Node:
        """A start that is known to end well."""
        node = self.node(**options)
        await node.recover()
        node.check()
        return node


async def test_a_vault_that_is_up_to_date_joins_at_once() -> None:
    bench = Bench()
    await bench.once()
    node = bench.node()
    report = await node.recover()
    node.check()
    assert (report.case, report.reason, report.outcome) == (Case.A, "LV = LM", Outcome.DONE)
    assert (report.revisions_replayed, report.snapshots) == (0, 0)
    assert [name for name, _ in node.source.asked] == ["state"]


@pytest.mark.parametrize("missed", [1, 2, 99, 100, 101, 2500])
async def test_missed_revisions_come_one_by_one_in_order(missed: int) -> None:
    """Case b; LV = LM - 1 among them."""
    bench = Bench()
    lv = (await bench.once()).vault.revision
    for number in range(missed):
        bench.cluster.do(Put(b"/k/%d" % (number % 7), b"%d" % number))
    node = bench.node(difference=100)
    report = await node.recover()
    node.check()
    assert (report.case, report.first_case, report.revisions_replayed) == (Case.B, Case.B, missed)
    assert node.told.revisions == list(range(lv + 1, lv + missed + 1))
    assert (report.lv_before, report.lv, report.lm) == (lv, lv + missed, lv + missed)
    assert report.pinned
    assert not bench.cluster.store._compactor._pins


async def test_an_empty_node_replays_from_the_first_revision_or_takes_a_snapshot() -> None:
    """LV = 0."""
    bench = Bench()
    assert (await bench.once()).follower.reports[0].case is Case.B
    bench.disk, bench.shelf = MemoryBackend(), Shelf()
    bench.compact()
    report = (await bench.once()).follower.reports[0]
    assert (report.case, report.reason) == (Case.C, SnapshotReason.COMPACTED.value)


@pytest.mark.parametrize(("kept", "case"), [(1, Case.B), (2, Case.C)])
async def test_mm_is_lv_plus_1_and_lv_plus_2_exactly(kept: int, case: Case) -> None:
    bench = Bench()
    lv = (await bench.once()).vault.revision
    bench.write(30)
    compact(bench.cluster, lv + kept)
    node = bench.node()
    assert (await node.recover()).case is case
    node.check()


async def test_a_snapshot_moves_what_differs_and_local_data_is_evicted_smartly() -> None:
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
    assert [phase for phase, _ in report.phases] == [Phase.ASK, Phase.SNAPSHOT, Phase.EVICTION, Phase.START]
    assert node.told.revisions == []
    assert node.told.differences == []


async def test_only_a_part_of_the_bytes_moves() -> None:
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


async def test_compaction_overtakes_a_replay() -> None:
    """R6: it goes over to a snapshot by itself; nothing is lost, nothing repeated."""
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
    assert len(node.told.revisions) == len(set(node.told.revisions)) == 20
    assert node.told.differences


async def test_a_replay_that_costs_more_than_a_snapshot_becomes_one() -> None:
    bench = Bench()
    await bench.once()
    for number in range(4000):
        bench.cluster.do(Put(b"/busy", b"%d" % number))
    node = bench.node(difference=100)

    def slow(_: object) -> None:
        node.clock.time += 0.01

    node.told.on_revision = slow
    report = await node.recover()
    node.check()
    assert (report.first_case, report.case, report.reason) == (Case.B, Case.C, SnapshotReason.COST.value)
    assert 2000 <= report.revisions_replayed < 4000
    assert [event.key for event in node.told.differences] == [b"/busy"]


async def test_what_is_known_to_cost_too_much_is_not_begun() -> None:
    bench = Bench()
    await bench.once()
    bench.write(200)
    report = (await bench.once(rates=DEAR, difference=100)).follower.reports[0]
    assert (report.first_case, report.reason, report.revisions_replayed) == (Case.C, SnapshotReason.COST.value, 0)


async def test_writes_faster_than_the_listeners_end_in_a_snapshot_and_a_larger_difference() -> None:
    """Never a livelock."""
    bench = Bench()
    await bench.once()
    bench.write(50)
    node = bench.node(difference=5)

    def busy(revision: object = None) -> None:
        for number in range(2 if revision else 20):
            bench.cluster.do(Put(b"/busy/%d" % number, b""))

    node.told.on_revision = node.source.before["state"] = busy
    async with asyncio.timeout(60):
        report = await node.recover()
    assert report.outcome is Outcome.DONE
    assert (report.reason, report.snapshots) == (SnapshotReason.STUCK.value, 1)
    assert report.difference > 5
    node.told.on_revision = None
    del node.source.before["state"]
    node.difference.value = 0
    await node.recover(running=True)
    node.check()


async def test_the_difference_can_be_changed_while_it_catches_up() -> None:
    bench = Bench()
    await bench.once()
    bench.write(50)
    node = bench.node(difference=0)

    def busy(revision: object) -> None:
        bench.cluster.do(Put(b"/busy", b""))
        if len(node.told.revisions) == 20:
            node.difference.value = 10_000

    node.told.on_revision = busy
    report = await node.recover()
    assert (report.difference, report.snapshots) == (10_000, 0)


REFUSALS = {
    RefusalReason.FOREIGN_CLUSTER: Lineage("another", 1, "n1"),
    RefusalReason.NEWER_HISTORY: Lineage("", 2, "n1"),
    RefusalReason.OLDER_HISTORY: Lineage("", 0, "n1"),
    RefusalReason.FOREIGN_NODE: Lineage("", 1, "n7"),
}


@pytest.mark.parametrize("reason", REFUSALS)
async def test_a_vault_of_another_history_is_refused_and_left_as_it_is(reason: RefusalReason) -> None:
    bench = Bench()
    assert bench.cluster.store.lineage == StoreLineage("", 1)
    Vault(bench.disk).claim(REFUSALS[reason])
    node = bench.node()
    before = node.disk.commits
    with pytest.raises(RecoveryRefused, match="What to do:") as refused:
        await node.recover()
    assert refused.value.refusal.reason is reason
    report = node.follower.reports[0]
    assert (report.outcome, report.case, report.reason) == (Outcome.REFUSED, Case.D, reason.value)
    assert node.disk.commits == before
    assert node.told.state is None
    assert [name for name, _ in node.source.asked] == ["state"]


async def test_a_cluster_that_is_behind_the_vault_is_refused() -> None:
    """Case d."""
    bench = Bench(writes=60)
    await bench.once()
    bench.cluster = Bench(seed=1, writes=30).cluster
    with pytest.raises(RecoveryRefused, match="the cluster has lost what it had acknowledged") as refused:
        await bench.node().recover()
    assert refused.value.refusal.reason is RefusalReason.AHEAD


async def test_a_vault_with_another_digest_at_lv_is_refused() -> None:
    bench = Bench(seed=1)
    await bench.once()
    bench.cluster = Bench(seed=2, writes=200).cluster
    with pytest.raises(RecoveryRefused) as refused:
        await bench.node().recover()
    assert refused.value.refusal.reason is RefusalReason.DIVERGED


async def test_standalone_starts_without_any_network() -> None:
    """R8."""
    bench = Bench()
    lv = (await bench.once()).vault.revision
    bench.write(10)
    node = bench.node(standalone=True)
    report = await node.recover()
    assert (report.case, report.outcome, report.lv) == (Case.STANDALONE, Outcome.DONE, lv)
    assert node.source.asked == []
    assert node.told.state
    bench.disk = MemoryBackend()
    with pytest.raises(RecoveryRefused, match="never held a state"):
        await bench.node(standalone=True).recover()


@pytest.mark.parametrize("question", ["state", "changes", "pin", "sums", "rows", "fingerprints", "unpin"])
async def test_recovery_goes_on_when_the_majority_is_back(question: str) -> None:
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


async def test_a_recovery_that_waits_ends_at_once_when_the_node_is_stopped() -> None:
    bench = Bench()
    node = bench.node()
    node.source.before["state"] = unavailable(10**9)
    task = asyncio.create_task(node.recover())
    for _ in range(50):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert node.follower.reports[0].outcome is Outcome.FAILED


async def test_a_damaged_chunk_is_asked_for_again_but_not_for_ever() -> None:
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
    with pytest.raises(ChunkDamaged, match="came damaged 5 times"):
        await node.recover()


async def test_a_listener_that_throws_leaves_lv_before_its_revision_and_the_next_start_retries() -> None:
    bench = Bench()
    lv = (await bench.once()).vault.revision
    bench.write(40)
    node = bench.node()

    def fail_at(revision: Any) -> None:
        if revision.number == lv + 17:
            raise RuntimeError("this component can't")

    node.told.on_revision = fail_at
    with pytest.raises(RuntimeError, match="this component can't"):
        await node.recover()
    assert (node.vault.revision, node.told.revisions) == (lv + 16, list(range(lv + 1, lv + 17)))
    assert node.follower.reports[0].outcome is Outcome.FAILED
    assert node.follower.reports[0].revisions_replayed == 16
    again = bench.node()
    await again.recover()
    again.check()
    assert again.told.revisions[0] == lv + 17


async def test_slow_listeners_have_their_revisions_committed_in_time() -> None:
    """So that a death of the process repeats little."""
    bench = Bench()
    await bench.once()
    bench.write(100)
    node = bench.node()
    behind = []

    def slow(revision: Any) -> None:
        node.clock.time += 0.05
        behind.append(revision.number - node.vault.revision)

    node.told.on_revision = slow
    await node.recover()
    node.check()
    assert max(behind) <= 5


async def test_a_change_that_does_not_fit_stops_the_node_before_anybody_is_told() -> None:
    bench = Bench(seed=1, writes=60)
    lv = (await bench.once()).vault.revision
    bench.write(30)
    node = bench.node()
    node.source.spoil["changes"] = lambda found: [found[0]._replace(bodies=found[1].bodies), *found[1:]]
    with pytest.raises(VaultDiverged):
        await node.recover()
    assert (node.vault.revision, node.told.revisions) == (lv, [])


async def test_a_pin_keeps_compaction_from_chasing_a_recovery_and_ends_by_itself() -> None:
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


async def test_a_pin_is_renewed_while_a_snapshot_takes_long_and_not_for_ever() -> None:
    bench = Bench(writes=300)
    bench.compact()
    node = bench.node(pin_life_s_max=100.0)
    node.source.before["rows"] = lambda: setattr(node.clock, "time", node.clock.time + 30)
    node.source.before["fingerprints"] = node.source.before["rows"]
    await node.recover()
    node.check()
    pins = [arguments for name, arguments in node.source.asked if name == "pin"]
    assert all(0 < life_s <= 60 for _, life_s in pins)


async def test_without_a_pin_recovery_goes_on() -> None:
    bench = Bench()
    for number in range(bench.cluster.limits.pins_max):
        from metastore.requests import Pin

        bench.cluster.do(Pin(f"other {number}", bench.cluster.store.revision, 60_000))
    node = bench.node()
    report = await node.recover()
    node.check()
    assert not report.pinned


async def test_a_snapshot_that_compaction_overtakes_goes_on_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metastore.feed.ROWS_PER_SLICE", 5)
    monkeypatch.setattr("recovery.store_source.SLICES_PER_CHUNK", 1)
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


async def test_a_vault_that_is_not_what_it_says_is_mended_bucket_by_bucket() -> None:
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
    from tests.support.vault_feed import follow

    follow(spoilt, other)
    spoilt.claim(lineage)
    assert spoilt.revision < lv
    node = bench.node()
    report = await node.recover()
    node.check()
    assert report.case is Case.C


async def test_reports_are_plain_values() -> None:
    import json

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
    assert phases >= {Phase.ASK, Phase.SNAPSHOT, Phase.START}
