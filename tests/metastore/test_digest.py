"""Digests: two replicas compare, and a difference is located (M7)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from palisade.base.digest import BUCKETS, SUM_MASK, bucket_of, digest_bytes, next_chain
from palisade.metastore.digest import SUMS_KEY, BucketSums, differing_buckets, first_divergence
from palisade.metastore.digest_check import DigestPart, verify
from palisade.metastore.memory_map import MemoryMap
from palisade.metastore.ordered_map import Table
from palisade.metastore.record import LINK_BYTES, content_leaf, unpack_row
from palisade.metastore.requests import Compact, DeleteRange, LeaseGrant, Put, Range, RequestId, Txn, WatchRequest
from palisade.metastore.results import KeyValue
from tests.support.meta_driver import Driver, contents_of, copy_of


@pytest.fixture
def full(driver: Driver) -> Driver:
    """Versions, a tombstone, a lease, a transaction, and a compaction of some of them."""
    driver.do(LeaseGrant(60_000, 7))
    driver.all(*(Put(b"key%d" % number, b"value%d" % number) for number in range(40)))
    driver.do(Put(b"key1", b"leased", lease=7))
    driver.do(DeleteRange(b"key2", b"key3"))
    driver.do(Txn(success=tuple(Put(b"txn%d" % number, b"x") for number in range(5))))
    driver.do(Compact(30))
    driver.collect_all()
    driver.all(Put(b"key5", b"again"), Put(b"txn1", b"again"), DeleteRange(b"key7"))
    return driver


def test_sound_store_has_no_findings(full: Driver) -> None:
    assert full.findings() == []
    assert full.restarted().findings() == []


def test_digest_changes_with_every_write_and_depends_on_content_only(driver: Driver) -> None:
    empty = driver.store.digest().buckets
    driver.do(Put(b"a", b"1"))
    assert differing_buckets(driver.store.digest(), driver.store.digest()) == ()
    assert driver.store.digest().buckets != empty
    chain = driver.store.digest().chain
    driver.do(DeleteRange(b"a"))
    assert driver.store.digest().buckets == empty
    assert driver.store.digest().chain != chain


def test_packed_sums_updated_incrementally_equal_a_full_packing() -> None:
    """Also if a sum exceeds its modulus, and if a writer changes the list itself (`plain_put_batch.py`)."""
    chance, tables = random.Random(5), MemoryMap()
    buckets = BucketSums(tables)
    expected = [0] * BUCKETS
    for _ in range(50):
        for _ in range(chance.choice((0, 1, 7, 300))):
            key, leaf = b"%d" % chance.randrange(3000), chance.randrange(-(1 << 128), 1 << 128)
            buckets.replace(key, 0, leaf)
            expected[bucket_of(key)] += leaf
        number = chance.randrange(BUCKETS)
        buckets.sums[number] += 5
        expected[number] += 5
        packed = b"".join(digest_bytes(total & SUM_MASK) for total in expected)
        assert buckets.packed() == packed
        assert buckets.numbers() == [total & SUM_MASK for total in expected]
        buckets.save(tables)
        assert tables.get(Table.META, SUMS_KEY) == packed
    assert BucketSums(tables).numbers() == buckets.numbers()


def test_differing_write_is_located_by_bucket_and_revision(full: Driver) -> None:
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


def test_digest_does_not_depend_on_times(driver: Driver) -> None:
    """A vault, which receives changes without their times, has the same digest."""
    twin = driver.copied()
    twin.wait(1)
    driver.do(Put(b"a"))
    twin.do(Put(b"a"))
    assert driver.store.digest() == twin.store.digest()


def test_change_feed_contains_everything_for_a_digest(full: Driver) -> None:
    """A vault follows chain and buckets from events alone."""
    store = full.store
    sums = dict.fromkeys(range(BUCKETS), 0)
    live: dict[bytes, KeyValue] = {}
    start = store.minimal_revision
    for kv in store.range(Range(b"\0", b"\0", revision=start)).kvs:
        live[kv.key] = kv
    chain = int.from_bytes(store.chain_at(start) or b"", "big")
    for revision in range(start + 1, store.revision + 1):
        for event in store.watches.events(WatchRequest(b"\0", b"\0"), revision).events:
            chain = next_chain(chain, content_leaf(event.kv))
            if event.delete:
                del live[event.kv.key]
            else:
                live[event.kv.key] = event.kv
    for kv in live.values():
        sums[bucket_of(kv.key)] += content_leaf(kv)
    digest = store.digest()
    assert chain == int.from_bytes(digest.chain, "big")
    assert [digest.bucket(number) for number in range(BUCKETS)] == [digest_bytes(sums[n] & SUM_MASK) for n in sums]


def test_chain_is_known_at_exactly_the_retained_revisions(full: Driver) -> None:
    store = full.store
    assert store.chain_at(29) is None
    assert store.chain_at(store.revision + 1) is None
    chains = [store.chain_at(revision) for revision in range(30, store.revision + 1)]
    assert None not in chains
    assert len(set(chains)) == len(chains)
    assert chains[-1] == store.digest().chain


def test_buckets_are_evenly_filled(driver: Driver) -> None:
    counts = [0] * BUCKETS
    for number in range(40_960):
        counts[bucket_of(b"flights/2013/%06d" % number)] += 1
    assert max(counts) < 40


def flip(tables: MemoryMap, table: Table, key: bytes, position: int) -> None:
    value = bytearray(tables.get(table, key) or b"")
    value[position // 8] ^= 1 << position % 8
    tables.put(table, key, bytes(value))


@pytest.mark.parametrize("table", [Table.REVISION, Table.KEY])
def test_any_flipped_bit_is_detected(full: Driver, table: Table) -> None:
    """In a block or a row, except for the target of a row's jump below MM, which is never followed."""
    dice = random.Random(3)
    content = contents_of(full.tables)[table]
    for key, value in content.items():
        below = table is Table.KEY and unpack_row(value).mod_revision < full.store.minimal_revision
        bits = range((LINK_BYTES if below else 0) * 8, len(value) * 8)
        for position in dice.sample(bits, 12):
            damaged = copy_of(full.tables)
            flip(damaged, table, key, position)
            assert list(verify(damaged)), f"bit {position} of {table.name} {key!r} in {len(value)} bytes"


@pytest.mark.parametrize("table", [Table.REVISION, Table.KEY])
def test_any_lost_entry_is_detected(full: Driver, table: Table) -> None:
    for key in contents_of(full.tables)[table]:
        damaged = copy_of(full.tables)
        damaged.delete(table, key)
        assert list(verify(damaged)), f"{table.name} {key!r}"


def test_finding_names_key_bucket_and_revision(full: Driver) -> None:
    full.do(Put(b"key9", b"newer"))
    found = full.get(b"key9")
    full.tables.delete(Table.KEY, b"key9")
    findings = {finding.part: finding for finding in full.findings()}
    assert findings[DigestPart.BUCKET].bucket == bucket_of(b"key9")
    finding = findings[DigestPart.HISTORY]
    assert (finding.key, finding.bucket, finding.revision) == (b"key9", bucket_of(b"key9"), found.mod_revision)
    assert "the key key9 was written at revision" in finding.message


def test_torn_block_is_named_by_its_last_event(full: Driver) -> None:
    pointer = max(contents_of(full.tables)[Table.REVISION])
    flip(full.tables, Table.REVISION, pointer, 8 * 90)
    assert [(finding.part, finding.revision) for finding in full.findings()] == [
        (DigestPart.REVISION, full.store.revision)
    ]


def test_key_changed_without_its_digest_is_detected(full: Driver) -> None:
    number = bucket_of(b"key9")
    full.tables.owner.saving()
    flip(full.tables, Table.META, SUMS_KEY, 8 * 16 * number + 5)
    assert [(finding.part, finding.bucket) for finding in verify(full.tables)] == [(DigestPart.BUCKET, number)]


def plant_wrong_leaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leaf omits the value."""
    from palisade.metastore import revision_writer
    from palisade.metastore.record import leaf_of

    monkeypatch.setattr(revision_writer, "leaf_of", lambda content: leaf_of(content[:38]))


def plant_forgotten_subtraction(monkeypatch: pytest.MonkeyPatch) -> None:
    original = BucketSums.replace
    monkeypatch.setattr(BucketSums, "replace", lambda self, key, old, new: original(self, key, 0, new))


def plant_reordered_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain of a written event does not depend on the one before it; readers compute it as they should."""
    from palisade.metastore import history

    close = history.History.close

    def reordered(written: history.History) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(history, "next_chain", lambda chain, leaf: leaf)
            close(written)

    monkeypatch.setattr(history.History, "close", reordered)


@pytest.mark.parametrize("plant", [plant_wrong_leaf, plant_forgotten_subtraction, plant_reordered_chain])
def test_check_detects_a_wrongly_computed_digest(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None]
) -> None:
    plant(monkeypatch)
    driver.do(Txn(success=(Put(b"a", b"1"), Put(b"b", b"2"))), RequestId("c", 1))
    driver.do(Txn(success=(Put(b"a", b"3"), DeleteRange(b"b"))))
    assert driver.findings()
