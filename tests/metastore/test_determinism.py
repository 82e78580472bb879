"""Same commands, same state: independent of the replica, its past and its hash seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from palisade.metastore.digest import control_digest
from palisade.metastore.limits import Limits
from palisade.metastore.ordered_map import Table
from palisade.metastore.requests import Put, RequestId
from tests.support.meta_driver import Driver
from tests.support.meta_workload import Workload

ROOT = Path(__file__).resolve().parents[2]
SMALL = Limits(quota_bytes=40_000, client_results_max=40, evicted_results_max=20)


def run(seed: int, entries: int, driver: Driver) -> Driver:
    """A random load, in entries of up to six commands."""
    load = Workload(seed)
    for _ in range(entries):
        driver.wait(load.dice.choice([0, 1, 300, 2_000]))
        load.revision, load.clock_ms = driver.store.revision, driver.clock_ms
        driver.batch(*(load.encoded() for _ in range(load.dice.randrange(1, 7))))
    return driver


def fingerprint(driver: Driver) -> tuple[object, ...]:
    """Everything that must be equal on all replicas; the progress of physical removal may differ."""
    store = driver.store
    state = driver.tables.get(Table.META, b"state")
    chains = [store.chain_at(revision) for revision in range(store.minimal_revision, store.revision + 1)]
    return (store.applied, store.digest(), control_digest(driver.tables), state, chains, store.size_bytes)


@pytest.mark.parametrize("seed", range(12))
def test_replica_restored_from_a_copy_ends_byte_equal(seed: int) -> None:
    """Scenarios, Meta storage: same commands on two stores, one of them restored half-way."""
    whole = run(seed, 60, Driver(limits=SMALL))
    reference = Driver(limits=SMALL)
    restored = reference
    for number, (stamp, commands) in enumerate(whole.log):
        if number == 30:
            restored = restored.copied()
        restored.apply(stamp, commands)
    assert fingerprint(restored) == fingerprint(whole)


@pytest.mark.parametrize("seed", range(6))
def test_replica_restarted_at_every_entry_gives_the_same_results(seed: int) -> None:
    """No relevant state is only in memory."""
    steady = Driver(limits=SMALL)
    restless = Driver(limits=SMALL)
    for stamp, commands in run(seed, 60, Driver(limits=SMALL)).log:
        restless = restless.restarted()
        assert steady.apply(stamp, commands) == restless.apply(stamp, commands)
        restless.collect_all()
    assert fingerprint(steady) == fingerprint(restless)
    assert steady.findings() == restless.findings() == []


@pytest.mark.parametrize("seed", range(6))
def test_split_of_the_log_into_entries_changes_no_digest(seed: int) -> None:
    """One entry or many: only the index differs."""
    log = [encoded for _, commands in run(seed, 20, Driver(limits=SMALL)).log for encoded in commands]
    one, many = Driver(limits=SMALL), Driver(limits=SMALL)
    results = one.apply([5, 5], log)
    assert results == [result for command in log for result in many.apply([5, 5], [command])]
    assert one.store.digest() == many.store.digest()


SCRIPT = """
from tests.metastore.test_determinism import *
import hashlib
for seed in range(3):
    print(hashlib.sha256(repr(fingerprint(run(seed, 40, Driver(limits=SMALL)))).encode()).hexdigest())
"""


def test_different_hash_seeds_end_byte_equal() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("0", "1", "4711")
    ]
    assert len(outputs[0].split()) == 3
    assert len(set(outputs)) == 1


def test_plain_and_general_path_give_the_same_results_on_all_replicas() -> None:
    """A restarted replica does not have the client in memory: its next put takes the general path."""
    steady = Driver(limits=Limits(quota_bytes=3_000))
    for sequence in range(1, 40):
        other = steady.copied()
        command = Put(b"k%d" % (sequence % 3), bytes(30))
        assert steady.wire(command, RequestId("c", sequence)) == other.wire(command, RequestId("c", sequence))
        assert fingerprint(steady) == fingerprint(other)
    assert steady.store.alarm
