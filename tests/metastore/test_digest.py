"""Digests: two replicas compare, and what differs is named (M7)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from metastore.digest import BUCKETS, bucket_key, bucket_of, differing_buckets, first_divergence
from metastore.memory_map import MemoryMap
from metastore.ordered_map import Table
from metastore.record import body_size
from metastore.requests import Compact, DeleteRange, LeaseGrant, Put, RequestId, Txn
from metastore.verify import Part, verify
from tests.support.meta_driver import Driver, contents_of, copy_of


@pytest.fixture
def full(driver: Driver) -> Driver:
    """Versions, a tombstone, a lease, a transaction, and a compaction behind some of it."""
    driver.do(LeaseGrant(60, 7))
    driver.all(*(Put(b"key%d" % number, b"value%d" % number) for number in range(40)))
    driver.do(Put(b"key1", b"leased", lease=7))
    driver.do(DeleteRange(b"key2", b"key3"))
    driver.do(Txn(success=tuple(Put(b"txn%d" % number, b"x") for number in range(5))))
    driver.do(Compact(30))
    driver.collect_all()
    driver.all(Put(b"key5", b"again"), Put(b"txn1", b"again"), DeleteRange(b"key7"))
    return driver


def test_a_sound_store_has_no_findings(full: Driver) -> None:
    assert list(verify(full.tables)) == []
    assert list(verify(full.restarted().tables)) == []


def test_a_digest_moves_with_every_write_and_comes_back_with_the_content(driver: Driver) -> None:
    empty = driver.store.digest().buckets
    driver.do(Put(b"a", b"1"))
    assert differing_buckets(driver.store.digest(), driver.store.digest()) == ()
    assert driver.store.digest().buckets != empty
    chain = driver.store.digest().chain
    driver.do(DeleteRange(b"a"))
    assert driver.store.digest().buckets == empty
    assert driver.store.digest().chain != chain


def test_one_different_write_is_found_by_its_bucket_and_its_revision(full: Driver) -> None:
    other = full.copied()
    for replica, value in ((full, b"right"), (other, b"wrong")):
        replica.do(Put(b"before"))
        replica.do(Put(b"key9", value))
        replica.all(Put(b"after"), Put(b"after"))
    one, two = full.store, other.store
    assert differing_buckets(one.digest(), two.digest()) == (bucket_of(b"key9"),)
    assert one.digest().root() != two.digest().root()
    where = first_divergence(one.chain_at, two.chain_at, one.minimal_revision, one.revision)
    assert where == full.get(b"key9").mod_revision


def test_equal_histories_have_no_divergence(full: Driver) -> None:
    other = full.copied().store
    assert first_divergence(full.store.chain_at, other.chain_at, 30, full.store.revision) is None


def test_digests_of_different_revisions_are_not_compared(full: Driver) -> None:
    before = full.store.digest()
    full.do(Put(b"a"))
    with pytest.raises(ValueError, match="can't be compared"):
        differing_buckets(before, full.store.digest())


def test_the_time_of_a_revision_is_part_of_the_chain(driver: Driver) -> None:
    twin = driver.copied()
    twin.wait(1)
    driver.do(Put(b"a"))
    twin.do(Put(b"a"))
    assert driver.store.digest().buckets == twin.store.digest().buckets
    assert driver.store.digest().chain != twin.store.digest().chain


def test_the_chain_is_known_at_every_retained_revision_and_no_other(full: Driver) -> None:
    store = full.store
    assert store.chain_at(29) is None
    assert store.chain_at(store.revision + 1) is None
    chains = [store.chain_at(revision) for revision in range(30, store.revision + 1)]
    assert None not in chains
    assert len(set(chains)) == len(chains)
    assert chains[-1] == store.digest().chain


def test_buckets_are_even(driver: Driver) -> None:
    counts = [0] * BUCKETS
    for number in range(40_960):
        counts[bucket_of(b"flights/2013/%06d" % number)] += 1
    assert max(counts) < 40


def flip(tables: MemoryMap, table: Table, key: bytes, position: int) -> None:
    value = bytearray(tables.get(table, key) or b"")
    value[position // 8] ^= 1 << position % 8
    tables.put(table, key, bytes(value))


@pytest.mark.parametrize("table", [Table.REVISION, Table.KEY, Table.HISTORY])
def test_any_flipped_bit_is_found(full: Driver, table: Table) -> None:
    """Of an event, a meta, a superseded version; but in the trailers below MM, which nothing reads any more."""
    dice = random.Random(3)
    content = contents_of(full.tables)[table]
    for key, value in content.items():
        below = table is Table.REVISION and int.from_bytes(key[:8], "big") < full.store.minimal_revision
        size = body_size(value) if below else len(value)
        for position in dice.sample(range(size * 8), 12):
            damaged = copy_of(full.tables)
            flip(damaged, table, key, position)
            assert list(verify(damaged)), f"bit {position} of {table.name} {key!r} in {len(value)} bytes"


@pytest.mark.parametrize("table", [Table.REVISION, Table.KEY])
def test_any_lost_entry_is_found(full: Driver, table: Table) -> None:
    for key in contents_of(full.tables)[table]:
        damaged = copy_of(full.tables)
        damaged.delete(table, key)
        assert list(verify(damaged)), f"{table.name} {key!r}"


def test_a_finding_names_the_key_the_bucket_and_the_revision(full: Driver) -> None:
    found = full.get(b"key9")
    pointer = found.mod_revision.to_bytes(8, "big") + bytes(4)
    flip(full.tables, Table.REVISION, pointer, 8 * 50)
    finding = next(iter(verify(full.tables)))
    assert (finding.part, finding.key, finding.bucket) == (Part.VALUE, b"key9", bucket_of(b"key9"))
    assert finding.revision == found.mod_revision
    assert "b'key9' is not what was written" in finding.message


def test_a_key_that_changes_without_its_digest_is_found(full: Driver) -> None:
    number = bucket_of(b"key9")
    flip(full.tables, Table.META, bucket_key(number), 5)
    assert [(finding.part, finding.bucket) for finding in verify(full.tables)] == [(Part.BUCKET, number)]


def plant_wrong_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leaf leaves the value out."""
    from metastore import revision_writer
    from metastore.record import leaf_of

    monkeypatch.setattr(revision_writer, "leaf_of", lambda pointer, body: leaf_of(pointer, body[:43]))


def plant_forgotten_subtraction(monkeypatch: pytest.MonkeyPatch) -> None:
    from metastore.digest import BucketSums
    from metastore.record import NO_DIGEST

    original = BucketSums.replace
    monkeypatch.setattr(BucketSums, "replace", lambda self, key, old, new: original(self, key, NO_DIGEST, new))


def plant_reordered_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain of a revision does not depend on the one before it."""
    from metastore import revision_writer
    from metastore.digest import next_chain

    monkeypatch.setattr(revision_writer, "next_chain", lambda chain, times, leaves: next_chain(b"", times, leaves))


@pytest.mark.parametrize("plant", [plant_wrong_leaf, plant_forgotten_subtraction, plant_reordered_chain])
def test_the_check_sees_a_digest_that_is_computed_wrongly(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    driver.do(Txn(success=(Put(b"a", b"1"), Put(b"b", b"2"))), RequestId("c", 1))
    driver.do(Txn(success=(Put(b"a", b"3"), DeleteRange(b"b"))))
    assert list(verify(driver.tables))
