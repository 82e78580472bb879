"""The state machine over the store on disk: the log restores what a crash loses; a snapshot is a complete replica."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from palisade.base.snapshots import SnapshotMeta
from palisade.metastore.digest import control_digest
from palisade.metastore.digest_check import verify
from palisade.metastore.limits import Limits
from palisade.metastore.lmdb_store import LmdbStore
from palisade.metastore.requests import Put, Range, WatchRequest
from palisade.metastore.state_machine import MetaStore
from tests.support.meta_driver import Driver
from tests.support.meta_workload import Workload

LIMITS = Limits(quota_bytes=60_000, client_results_max=40)
Log = list[tuple[list[int], list[bytes]]]


def random_log(seed: int, entries: int) -> tuple[Driver, Log]:
    """A replica in memory, and its log."""
    driver, load = Driver(limits=LIMITS), Workload(seed)
    for _ in range(entries):
        driver.wait(load.dice.choice([0, 1, 700]))
        load.revision, load.clock_ms = driver.store.revision, driver.clock_ms
        driver.batch(*(load.encoded() for _ in range(load.dice.randrange(1, 8))))
    return driver, driver.log


def assert_equal(store: MetaStore, tables: LmdbStore, reference: Driver) -> None:
    assert store.applied == reference.store.applied
    assert store.digest() == reference.store.digest()
    assert control_digest(tables) == control_digest(reference.tables)
    tables.owner.saving()
    assert list(verify(tables)) == []


def replay(store: MetaStore, log: Log, stop: int) -> None:
    """Apply the missing entries up to `stop`."""
    for index in range(store.applied[0] + 1, stop + 1):
        store.apply(index, 1, *log[index - 1])


@pytest.mark.parametrize("seed", range(5))
async def test_log_restores_the_state_after_any_crash(seed: int, tmp_path: Path) -> None:
    reference, log = random_log(seed, 80)
    dice = random.Random(seed)
    for stop in [*sorted(dice.sample(range(1, 80), 6)), 80]:
        tables = LmdbStore(tmp_path)
        store = MetaStore(tables, LIMITS)
        assert store.applied == tables.durable
        replay(store, log, stop)
        if dice.random() < 0.6:
            await tables.flush()
            replay(store, log, min(80, stop + 2))
        last = store.applied
        store.collect(dice.randrange(1, 200))
        if stop == 80:
            assert_equal(store, tables, reference)
            await tables.flush()
            assert tables.durable == last
        tables.close()


async def test_snapshot_creates_a_replica_and_wakes_its_watches(tmp_path: Path) -> None:
    reference, log = random_log(42, 60)
    source, target = LmdbStore(tmp_path / "source"), LmdbStore(tmp_path / "target")
    leader, follower = MetaStore(source, LIMITS), MetaStore(target, LIMITS)
    replay(leader, log, 40)
    replay(follower, log, 5)
    woken: list[int] = []
    watcher = follower.watches.open(WatchRequest(b"\0", b"\0"), lambda: woken.append(follower.revision))
    assert watcher.poll() == ()
    reader = await source.open_snapshot()
    meta = reader.meta
    writer = target.receive_snapshot(SnapshotMeta(meta.id, meta.index, meta.term, meta.size_bytes))
    while (piece := reader.chunk(writer.next_chunk)) is not None:
        writer.write(writer.next_chunk, piece)
    await writer.finish()
    reader.close()
    assert woken == [leader.revision]
    assert follower.digest() == leader.digest()
    replay(leader, log, 60)
    replay(follower, log, 60)
    assert_equal(follower, target, reference)
    for tables in (source, target):
        tables.close()


async def test_keys_longer_than_lmdbs_limit_work_like_others(tmp_path: Path) -> None:
    tables = LmdbStore(tmp_path)
    store = MetaStore(tables)
    reference = Driver()
    for number in range(20):
        reference.do(Put(b"long" * 900 + b"%02d" % (number * 7 % 20), b"v"))
    replay(store, reference.log, 20)
    await tables.flush()
    assert_equal(store, tables, reference)
    everything = Range(b"\0", b"\0", keys_only=True)
    assert store.range(everything) == reference.store.range(everything)
    tables.close()
