"""The vault follows the metadata store: data, LV, chain and bucket digests in one commit (issue 3, R1)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from palisade.base.digest import unpack_sums
from palisade.metastore.requests import DeleteRange, Put
from palisade.vault.change import Item, Revision, events_of
from palisade.vault.errors import VaultDiverged, VaultForeign, VaultGap
from palisade.vault.lmdb_tables import LmdbBackend
from palisade.vault.memory_tables import MemoryBackend
from palisade.vault.position import VaultLineage
from palisade.vault.tables import Backend
from palisade.vault.vault import Vault
from tests.support.meta_driver import Driver
from tests.support.vault_feed import follow, full, items_of, revision_at, revisions, state_of, write_some

BACKENDS = ("memory", "lmdb")


@pytest.fixture(params=BACKENDS)
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Vault]]:
    """A vault, and the same one after each restart of its process."""
    memory = MemoryBackend()
    opened: list[Vault] = []

    def open_again() -> Vault:
        if opened:
            opened.pop().close()
        backend: Any = memory if request.param == "memory" else LmdbBackend(tmp_path / "vault", map_bytes=1 << 20)
        opened.append(Vault(backend))
        return opened[0]

    yield open_again
    for vault in opened:
        vault.close()


def assert_equal(vault: Vault, driver: Driver) -> None:
    assert items_of(vault) == state_of(driver)
    theirs = driver.store.digest()
    assert (vault.revision, vault.chain, vault.packed_sums()) == (theirs.revision, theirs.chain, theirs.buckets)
    assert vault.key_count == driver.store.key_count


def test_new_vault_is_empty_and_has_no_lineage(reopen: Callable[[], Vault]) -> None:
    vault = reopen()
    assert (vault.revision, vault.lineage, vault.recovering, vault.plan()) == (0, None, None, None)
    assert list(vault.range(b"")) == []
    assert vault.get(b"a") is None


@pytest.mark.parametrize("batch", [1, 7, 1000])
def test_vault_equals_the_store_at_every_revision(reopen: Callable[[], Vault], batch: int) -> None:
    rng = random.Random(batch)
    vault, driver = reopen(), Driver()
    for round_number in range(6):
        write_some(driver, rng, 60)
        while vault.revision < driver.store.revision:
            follow(vault, driver, min(vault.revision + batch, driver.store.revision))
        assert_equal(vault, driver)
        if round_number % 2:
            vault = reopen()
            assert_equal(vault, driver)


def test_vault_at_lv_0_accepts_the_empty_first_revision(reopen: Callable[[], Vault]) -> None:
    vault = reopen()
    vault.apply([Revision(1, ())])
    assert (vault.revision, vault.chain) == (1, bytes(16))
    follow(vault, full([(b"a", b"1")]))
    assert vault.get(b"a") == Item(b"a", b"1", 2, 2, 1, 0)


def test_revision_that_does_not_follow_changes_nothing(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    vault = reopen()
    follow(vault, driver, 2)
    for wrong in ([revision_at(driver, 4)], [revision_at(driver, 2)], revisions(driver, 1)):
        with pytest.raises(VaultGap, match="does not follow revision 2"):
            vault.apply(wrong)
    assert (vault.revision, [item.key for item in vault.range(b"")]) == (2, [b"a"])


def test_batch_with_a_fault_changes_nothing(reopen: Callable[[], Vault]) -> None:
    driver = full([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    vault = reopen()
    good = revisions(driver, 1)
    torn = good[3]._replace(bodies=[good[3].bodies[0][:-1]])
    with pytest.raises(VaultDiverged, match="event 0 of revision 4 is malformed"):
        vault.apply([*good[:3], torn])
    assert (vault.revision, vault.packed_sums(), list(vault.range(b""))) == (0, bytes(65536), [])


def test_change_of_an_unknown_version_is_detected(reopen: Callable[[], Vault]) -> None:
    """R7: vault and cluster have different histories."""
    ours, theirs = full([(b"a", b"1"), (b"b", b"2")]), full([(b"x", b"1"), (b"b", b"2")])
    vault = reopen()
    follow(vault, ours)
    theirs.do(Put(b"x", b"3"))
    with pytest.raises(VaultDiverged, match="replaces a version of the key b'x'"):
        follow(vault, theirs)
    theirs = full([(b"x", b"1"), (b"b", b"2"), (b"new", b"1")])
    with pytest.raises(VaultDiverged, match="at revision 4 the chain digests of vault and cluster differ"):
        follow(vault, theirs)
    assert vault.revision == 3


def test_replaced_values_of_a_batch_are_not_all_in_memory() -> None:
    """Eight thousand deletes of values of a MiB are a small batch, but the replaced values are 8 GB."""
    driver, backend = full([(b"k%04d" % number, b"v") for number in range(1_000)]), MemoryBackend()
    follow(Vault(backend), driver)
    driver.do(DeleteRange(b"k", b"l"))
    asked, get_many = list[int](), backend.get_many
    backend.get_many = lambda table, keys: (asked.append(len(keys)), get_many(table, keys))[1]  # type: ignore[method-assign]
    vault = Vault(backend)
    follow(vault, driver)
    assert sum(asked) == 1_000
    assert max(asked) <= 128
    assert_equal(vault, driver)


def test_vault_belongs_to_one_node_of_one_cluster(reopen: Callable[[], Vault]) -> None:
    vault, lineage = reopen(), VaultLineage("c1", 3, "n1")
    vault.claim(lineage)
    vault.claim(lineage)
    vault = reopen()
    assert vault.lineage == lineage
    for other in (VaultLineage("c2", 3, "n1"), VaultLineage("c1", 4, "n1"), VaultLineage("c1", 3, "n2")):
        with pytest.raises(VaultForeign, match="palisade vault reset"):
            vault.claim(other)
    assert vault.lineage == lineage


def test_local_configuration_is_separate_from_the_clusters_state(reopen: Callable[[], Vault]) -> None:
    """Seed 001: no conflicts are possible, the property sets do not intersect."""
    vault = reopen()
    vault.set_config({"name": b"n1", "rack": b"r7"})
    follow(vault, full([(b"name", b"of the cluster")]))
    vault.set_config({"rack": None})
    vault = reopen()
    assert vault.config() == {"name": b"n1"}
    assert vault.get(b"name") == Item(b"name", b"of the cluster", 2, 2, 1, 0)


def test_eviction_plan_is_kept_until_removed(reopen: Callable[[], Vault]) -> None:
    vault = reopen()
    vault.store_plan(b"plan")
    assert reopen().plan() == (b"plan", 0)
    reopen().plan_step_done(3)
    assert reopen().plan() == (b"plan", 3)
    reopen().store_plan(b"next")
    assert reopen().plan() == (b"next", 0)
    reopen().store_plan(None)
    assert reopen().plan() is None


def test_ranges_are_in_order_including_long_keys(reopen: Callable[[], Vault]) -> None:
    keys = [b"p" * 479, b"p" * 480, *(b"p" * 480 + bytes([byte]) * 30 for byte in range(5)), b"p" * 481, b"q"]
    driver, vault = full([(key, b"%d" % len(key)) for key in keys]), reopen()
    follow(vault, driver)
    expected = sorted(keys)
    assert [item.key for item in vault.range(b"")] == expected
    for first in range(len(expected)):
        assert vault.get(expected[first]) is not None
        for last in range(first, len(expected)):
            found = [item.key for item in vault.range(expected[first], expected[last])]
            assert found == expected[first:last]
            pages = vault.key_pages(expected[first], expected[last], 3)
            assert sorted(chain.from_iterable(pages)) == expected[first:last]
    driver.do(DeleteRange(expected[4]))
    follow(vault, driver)
    assert vault.get(expected[4]) is None
    assert vault.get(b"p" * 480 + b"unknown" * 9) is None


def test_events_of_a_revision_match_a_watch() -> None:
    driver = full([(b"a", b"1")])
    driver.do(DeleteRange(b"a"))
    put, delete = (list(events_of(revision_at(driver, number))) for number in (2, 3))
    assert [(event.key, event.item, event.mod_revision) for event in put] == [(b"a", Item(b"a", b"1", 2, 2, 1, 0), 2)]
    assert [(event.key, event.item, event.mod_revision) for event in delete] == [(b"a", None, 3)]


class Failing:
    """A backend whose next commit fails, as on a full disk."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.get, self.get_many, self.scan = backend.get, backend.get_many, backend.scan
        self.key_pages, self.close = backend.key_pages, backend.close

    def commit(self, *_: Any) -> None:
        raise OSError("disk full")


def test_failed_commit_changes_neither_memory_nor_disk() -> None:
    driver, backend = full([(b"a", b"1"), (b"b", b"2")]), MemoryBackend()
    follow(Vault(backend), driver, 2)
    vault = Vault(Failing(backend))
    before = (vault.position, vault.packed_sums())
    with pytest.raises(OSError, match="disk full"):
        follow(vault, driver)
    assert (vault.position, vault.packed_sums()) == before
    assert unpack_sums(vault.packed_sums()) == Vault(backend).sums
